import jakarta.jws.Oneway;
import jakarta.jws.WebMethod;
import jakarta.jws.WebParam;
import jakarta.jws.WebResult;
import jakarta.jws.WebService;
import jakarta.xml.bind.annotation.XmlAccessType;
import jakarta.xml.bind.annotation.XmlAccessorType;
import jakarta.xml.bind.annotation.XmlElement;
import jakarta.xml.bind.annotation.XmlType;
import jakarta.xml.soap.SOAPConstants;
import jakarta.xml.ws.BindingProvider;
import jakarta.xml.ws.WebFault;
import jakarta.xml.ws.soap.SOAPBinding;
import jakarta.xml.ws.soap.SOAPFaultException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Hashtable;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import javax.naming.Context;
import javax.naming.InitialContext;
import javax.naming.NamingException;
import javax.naming.spi.InitialContextFactory;
import org.apache.cxf.endpoint.Server;
import org.apache.cxf.frontend.ClientProxy;
import org.apache.cxf.jaxws.JaxWsProxyFactoryBean;
import org.apache.cxf.jaxws.JaxWsServerFactoryBean;
import org.apache.cxf.transport.common.gzip.GZIPFeature;
import org.apache.cxf.transport.jms.JMSConstants;
import org.apache.cxf.transport.jms.JMSMessageHeadersType;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.w3c.dom.Node;

/**
 * Apache CXF as clients and services over JMS, many in one process, driven by lines. A line has words with tabs between,
 * each encoded as in a URL's query; the first is a number of the caller's, which the answer to it begins with:
 *
 * <pre>
 * 1 serve NAME VERSION URI [gzip]       starts a service: ok
 * 2 stop NAME                           ends it: ok
 * 3 heard NAME                          what its one-way operation got so far: ok TEXT...
 * 4 call VERSION URI OPERATION TEXT [OPTION=VALUE...]
 *     ok TEXT | null | declared CODE REASON | fault CODE SUBCODES REASON DETAIL | failed REASON
 * 5 leave VERSION URI [OPTION=VALUE...] ends the client of such calls: ok
 * </pre>
 *
 * VERSION is 1.1 or 1.2. Options of a call: bindingVersion, requestURI and targetService replace what CXF would write;
 * gzip=true compresses; text=null leaves the argument out. Calls with the same version, URI and gzip have one client, and
 * one connection.
 */
public class Cxf {
  static final String NAMESPACE = "urn:soapjms:echo";
  private static final String OVER_JMS = "http://www.w3.org/2010/soapjms/";
  private static final Map<String, Server> SERVERS = new ConcurrentHashMap<>();
  private static final Map<String, EchoService> SERVICES = new ConcurrentHashMap<>();
  private static final Map<String, Echo> CLIENTS = new ConcurrentHashMap<>();

  /** The operations. */
  @WebService(name = "EchoPortType", targetNamespace = NAMESPACE)
  public interface Echo {
    @WebMethod(action = NAMESPACE + "/greetMe")
    @WebResult(name = "responseType", targetNamespace = NAMESPACE)
    String greetMe(@WebParam(name = "requestType", targetNamespace = NAMESPACE) String text);

    @WebMethod(action = NAMESPACE + "/testFault")
    @WebResult(name = "responseType", targetNamespace = NAMESPACE)
    String testFault(@WebParam(name = "requestType", targetNamespace = NAMESPACE) String text) throws EchoFault;

    @Oneway
    @WebMethod(action = NAMESPACE + "/pingMe")
    void pingMe(@WebParam(name = "requestType", targetNamespace = NAMESPACE) String text);

    @WebMethod(action = NAMESPACE + "/pingCount")
    @WebResult(name = "responseType", targetNamespace = NAMESPACE)
    long pingCount();
  }

  /** What the declared fault tells. */
  @XmlAccessorType(XmlAccessType.FIELD)
  @XmlType(name = "EchoFaultDetail", namespace = NAMESPACE, propOrder = {"code", "reason"})
  public static class EchoFaultDetail {
    @XmlElement(namespace = NAMESPACE, required = true)
    public int code;

    @XmlElement(namespace = NAMESPACE, required = true)
    public String reason;
  }

  /** The declared fault. */
  @WebFault(name = "EchoFault", targetNamespace = NAMESPACE)
  @SuppressWarnings("serial")
  public static class EchoFault extends Exception {
    private final transient EchoFaultDetail detail;

    public EchoFault(String message, EchoFaultDetail detail) {
      super(message);
      this.detail = detail;
    }

    public EchoFaultDetail getFaultInfo() {
      return detail;
    }
  }

  /** Finds Qpid's client under any name, for brokers whose URL is one of AMQP: its own takes a file for that. */
  public static class Amqp implements InitialContextFactory {
    @Override
    public Context getInitialContext(Hashtable<?, ?> environment) throws NamingException {
      return new InitialContext(true) {
        @Override
        public Object lookup(String name) {
          return new JmsConnectionFactory((String) environment.get(Context.PROVIDER_URL));
        }
      };
    }
  }

  /** Echoes, fails, counts. */
  @WebService(
      serviceName = "EchoService",
      portName = "EchoPort",
      endpointInterface = "Cxf$Echo",
      targetNamespace = NAMESPACE)
  public static class EchoService implements Echo {
    final Queue<String> heard = new ConcurrentLinkedQueue<>();

    @Override
    public String greetMe(String text) {
      if ("fail".equals(text)) {
        throw new IllegalStateException("as it was asked to");
      }
      return text;
    }

    @Override
    public String testFault(String text) throws EchoFault {
      EchoFaultDetail detail = new EchoFaultDetail();
      detail.code = 42;
      detail.reason = text;
      throw new EchoFault("declared", detail);
    }

    @Override
    public void pingMe(String text) {
      heard.add(String.valueOf(text));
    }

    @Override
    public long pingCount() {
      return heard.size();
    }
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream out = System.out;
    System.setOut(System.err); // what libraries print is no answer
    ExecutorService threads = Executors.newCachedThreadPool();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    out.println("ready");
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = decoded(line.split("\t", -1));
      threads.execute(
          () -> {
            List<String> answer = answered(words);
            synchronized (out) {
              out.println(words[0] + "\t" + encoded(answer));
              out.flush();
            }
          });
    }
    System.exit(0);
  }

  private static List<String> answered(String[] words) {
    try {
      switch (words[1]) {
        case "serve":
          return serve(words[2], words[3], words[4], words.length > 5);
        case "stop":
          SERVERS.remove(words[2]).destroy();
          return List.of("ok");
        case "heard":
          List<String> all = new ArrayList<>(List.of("ok"));
          all.addAll(SERVICES.get(words[2]).heard);
          return all;
        case "call":
          return call(words[2], words[3], words[4], words[5], options(words, 6));
        case "leave":
          return leave(words[2], words[3], options(words, 4));
        default:
          return List.of("failed", "there is no " + words[1]);
      }
    } catch (Exception | LinkageError error) {
      error.printStackTrace();
      return List.of("failed", reason(error));
    }
  }

  private static List<String> serve(String name, String version, String uri, boolean zipped) {
    EchoService service = new EchoService();
    JaxWsServerFactoryBean factory = new JaxWsServerFactoryBean();
    factory.setServiceBean(service);
    factory.setBindingId(binding(version));
    factory.setTransportId(OVER_JMS);
    factory.setAddress(uri);
    if (zipped) {
      factory.getFeatures().add(zip());
    }
    SERVICES.put(name, service);
    SERVERS.put(name, factory.create());
    return List.of("ok");
  }

  private static List<String> call(
      String version, String uri, String operation, String text, Map<String, String> options) {
    boolean zipped = options.containsKey("gzip");
    Echo client = CLIENTS.computeIfAbsent(key(version, uri, zipped), key -> client(version, uri, zipped));
    Map<String, Object> context = ((BindingProvider) client).getRequestContext();
    context.put("thread.local.request.context", "true");
    context.put(JMSConstants.JMS_CLIENT_REQUEST_HEADERS, headers(options));
    try {
      return returned(client, operation, "null".equals(options.get("text")) ? null : text);
    } catch (EchoFault fault) {
      return List.of("declared", String.valueOf(fault.getFaultInfo().code), fault.getFaultInfo().reason);
    } catch (SOAPFaultException error) {
      return told(error);
    }
  }

  private static List<String> returned(Echo client, String operation, String text) throws EchoFault {
    String found;
    switch (operation) {
      case "greetMe":
        found = client.greetMe(text);
        break;
      case "testFault":
        found = client.testFault(text);
        break;
      case "pingMe":
        client.pingMe(text);
        found = "";
        break;
      case "pingCount":
        found = String.valueOf(client.pingCount());
        break;
      default:
        return List.of("failed", "there is no " + operation);
    }
    return found == null ? List.of("null") : List.of("ok", found);
  }

  private static List<String> told(SOAPFaultException error) {
    if (error.getCause() != null && !(error.getCause() instanceof org.apache.cxf.binding.soap.SoapFault)) {
      return List.of("failed", reason(error)); // of its own, not from the other side
    }
    List<String> subcodes = new ArrayList<>();
    if (SOAPConstants.URI_NS_SOAP_1_2_ENVELOPE.equals(error.getFault().getNamespaceURI())) { // 1.1 has none
      error.getFault().getFaultSubcodes().forEachRemaining(each -> subcodes.add(each.toString()));
    }
    Node detail = error.getFault().getDetail();
    return List.of(
        "fault",
        error.getFault().getFaultCodeAsQName().toString(),
        String.join(" ", subcodes),
        String.valueOf(error.getFault().getFaultString()),
        detail == null ? "" : detail.getTextContent());
  }

  private static List<String> leave(String version, String uri, Map<String, String> options) {
    Echo client = CLIENTS.remove(key(version, uri, options.containsKey("gzip")));
    if (client != null) {
      ClientProxy.getClient(client).destroy();
    }
    return List.of("ok");
  }

  private static String key(String version, String uri, boolean zipped) {
    return version + " " + uri + " " + zipped;
  }

  private static Echo client(String version, String uri, boolean zipped) {
    JaxWsProxyFactoryBean factory = new JaxWsProxyFactoryBean();
    factory.setServiceClass(Echo.class);
    factory.setBindingId(binding(version));
    factory.setTransportId(OVER_JMS);
    factory.setAddress(uri);
    if (zipped) {
      factory.getFeatures().add(zip());
    }
    return factory.create(Echo.class);
  }

  private static GZIPFeature zip() {
    GZIPFeature feature = new GZIPFeature();
    feature.setThreshold(0);
    feature.setForce(true);
    return feature;
  }

  private static String binding(String version) {
    return "1.2".equals(version) ? SOAPBinding.SOAP12HTTP_BINDING : SOAPBinding.SOAP11HTTP_BINDING;
  }

  private static JMSMessageHeadersType headers(Map<String, String> options) {
    JMSMessageHeadersType headers = new JMSMessageHeadersType();
    if (options.containsKey("bindingVersion")) {
      headers.setSOAPJMSBindingVersion(options.get("bindingVersion"));
    }
    if (options.containsKey("requestURI")) {
      headers.setSOAPJMSRequestURI(options.get("requestURI"));
    }
    if (options.containsKey("targetService")) {
      headers.setSOAPJMSTargetService(options.get("targetService"));
    }
    return headers;
  }

  private static Map<String, String> options(String[] words, int from) {
    Map<String, String> found = new HashMap<>();
    for (int each = from; each < words.length; each++) {
      String[] parts = words[each].split("=", 2);
      found.put(parts[0], parts[1]);
    }
    return found;
  }

  private static String reason(Throwable error) {
    List<String> reasons = new ArrayList<>();
    for (Throwable each = error; each != null; each = each.getCause()) {
      reasons.add(each.getClass().getSimpleName() + ": " + each.getMessage());
    }
    return String.join(" | ", reasons);
  }

  private static String[] decoded(String[] words) {
    return Arrays.stream(words).map(each -> URLDecoder.decode(each, StandardCharsets.UTF_8)).toArray(String[]::new);
  }

  private static String encoded(List<String> words) {
    List<String> found = new ArrayList<>();
    words.forEach(each -> found.add(URLEncoder.encode(each, StandardCharsets.UTF_8)));
    return String.join("\t", found);
  }
}
