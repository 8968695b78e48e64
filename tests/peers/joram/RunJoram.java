import java.util.HashMap;
import java.util.Hashtable;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import javax.naming.Context;
import javax.naming.InitialContext;
import javax.naming.NamingException;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;
import org.objectweb.jtests.jms.admin.Admin;

/**
 * Runs classes of tests, Joram's and ours, through Qpid JMS, and says of each test how it ended, a line for each:
 *
 * <pre>java RunJoram amqp://127.0.0.1:5672 CLASS...</pre>
 *
 * Its lines begin with "passed" or "failed", the milliseconds that it took, and CLASS.METHOD; what follows a tab is the reason.
 */
public class RunJoram {
  private static String url;

  public static void main(String[] arguments) throws Exception {
    url = arguments[0];
    Class<?>[] tests = new Class<?>[arguments.length - 1];
    for (int each = 0; each < tests.length; each++) {
      tests[each] = Class.forName(arguments[each + 1]);
    }
    JUnitCore runner = new JUnitCore();
    runner.addListener(new Lines());
    runner.run(tests);
    System.exit(0); // whatever threads a test left behind
  }

  /** Where the broker is, for tests of our own. */
  static String url() {
    return url;
  }

  /** Writes the lines. */
  private static class Lines extends RunListener {
    private String reason;
    private long began;

    @Override
    public void testStarted(Description test) {
      reason = null;
      began = System.nanoTime();
    }

    @Override
    public void testFailure(Failure failure) {
      if (reason == null) { // else the end of a test failed, too
        reason = failure.getTrimmedTrace().strip().replaceAll("\\s*\\R\\s*", " | ");
      }
    }

    @Override
    public void testFinished(Description test) {
      String name = test.getTestClass().getSimpleName() + "." + test.getMethodName();
      long took = (System.nanoTime() - began) / 1_000_000;
      System.out.println((reason == null ? "passed" : "failed") + " " + took + " " + name + (reason == null ? "" : "\t" + reason));
    }
  }

  /**
   * What the tests ask for connection factories and destinations by name. Nothing is made in the broker: it makes
   * destinations as they are used, and each test has others, so that none finds what another left behind.
   */
  public static class Names implements Admin {
    private static final AtomicInteger NUMBERS = new AtomicInteger();
    private final int number = NUMBERS.incrementAndGet();
    private final Map<String, String> names = new HashMap<>();

    @Override
    public String getName() {
      return "AMQP 1.0";
    }

    @Override
    public Context createContext() throws NamingException {
      Hashtable<String, String> environment = new Hashtable<>(names);
      environment.put(Context.INITIAL_CONTEXT_FACTORY, "org.apache.qpid.jms.jndi.JmsInitialContextFactory");
      return new InitialContext(environment);
    }

    @Override
    public void createConnectionFactory(String name) {
      names.put("connectionfactory." + name, url);
    }

    @Override
    public void createQueueConnectionFactory(String name) {
      createConnectionFactory(name);
    }

    @Override
    public void createTopicConnectionFactory(String name) {
      createConnectionFactory(name);
    }

    @Override
    public void createQueue(String name) {
      names.put("queue." + name, name + "-" + number);
    }

    @Override
    public void createTopic(String name) {
      names.put("topic." + name, name + "-" + number);
    }

    @Override
    public void deleteQueue(String name) {}

    @Override
    public void deleteTopic(String name) {}

    @Override
    public void deleteConnectionFactory(String name) {}

    @Override
    public void deleteQueueConnectionFactory(String name) {}

    @Override
    public void deleteTopicConnectionFactory(String name) {}

    @Override
    public void startServer() {}

    @Override
    public void stopServer() {}

    @Override
    public void start() {}

    @Override
    public void stop() {}
  }
}
