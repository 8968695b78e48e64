// Starts Qpid Broker-J, and ends it when standard input ends.
//
//   java -cp LIB/* StartQpid.java CONFIGURATION PORT DIRECTORY

import java.util.HashMap;
import java.util.Map;
import org.apache.qpid.server.SystemLauncher;
import org.apache.qpid.server.model.SystemConfig;

public class StartQpid {
    public static void main(String[] args) throws Exception {
        Map<String, Object> attributes = new HashMap<>();
        attributes.put(SystemConfig.TYPE, "JSON");
        attributes.put(SystemConfig.INITIAL_CONFIGURATION_LOCATION, args[0]);
        attributes.put("storePath", args[2] + "/config.json");
        attributes.put(SystemConfig.STARTUP_LOGGED_TO_SYSTEM_OUT, true);
        attributes.put(SystemConfig.CONTEXT, Map.of("qpid.amqp_port", args[1], "qpid.work_dir", args[2]));
        SystemLauncher launcher = new SystemLauncher();
        launcher.startup(attributes);
        while (System.in.read() >= 0) {
            // wait for the end
        }
        launcher.shutdown();
        System.exit(0);
    }
}
