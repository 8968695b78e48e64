// Starts Qpid Broker-J, and ends it when standard input ends.
//
//   java -cp LIB/* StartQpid.java FILES AMQP-PORT WEBSOCKET-PORT DIRECTORY

import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.qpid.server.SystemLauncher;
import org.apache.qpid.server.model.SystemConfig;

public class StartQpid {
    public static void main(String[] args) throws Exception {
        Path files = Path.of(args[0]);
        String directory = args[3];
        Map<String, String> context = new HashMap<>();
        context.put("qpid.virtualhost", files.resolve("virtualhost.json").toUri().toString());
        context.put("qpid.amqp_port", args[1]);
        context.put("qpid.ws_port", args[2]);
        context.put("qpid.work_dir", directory);
        Map<String, Object> attributes = new HashMap<>();
        attributes.put(SystemConfig.TYPE, "JSON");
        attributes.put(SystemConfig.INITIAL_CONFIGURATION_LOCATION, files.resolve("initial-config.json").toString());
        attributes.put("storePath", directory + "/config.json");
        attributes.put(SystemConfig.STARTUP_LOGGED_TO_SYSTEM_OUT, true);
        attributes.put(SystemConfig.CONTEXT, context);
        SystemLauncher launcher = new SystemLauncher();
        launcher.startup(attributes);
        while (System.in.read() >= 0) {
            // wait for the end
        }
        launcher.shutdown();
        System.exit(0);
    }
}
