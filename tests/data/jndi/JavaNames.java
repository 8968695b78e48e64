import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Base64;
import java.util.Properties;
import java.util.stream.Stream;
import javax.naming.InitialContext;

/**
 * What Java makes of properties files.
 *
 * load FOLDER: for each file a line with its name, and a line for each entry (key and value, base64 of UTF-16), or
 * "refused".
 *
 * lookup FILE NAME...: for each name a line with what the initial context of the file has under it.
 */
public class JavaNames {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("load")) {
            try (Stream<Path> files = Files.list(Path.of(args[1]))) {
                for (Path file : (Iterable<Path>) files.sorted()::iterator) {
                    System.out.println(file.getFileName());
                    print(file);
                }
            }
            return;
        }
        InitialContext context = new InitialContext(read(Path.of(args[1])));
        for (String name : Arrays.copyOfRange(args, 2, args.length)) {
            Object found = context.lookup(name);
            System.out.println(found instanceof org.apache.activemq.ActiveMQConnectionFactory factory
                ? factory.getBrokerURL() : found.toString());
        }
    }

    private static Properties read(Path file) throws IOException {
        Properties entries = new Properties();
        try (InputStream in = Files.newInputStream(file)) {
            entries.load(in);
        }
        return entries;
    }

    private static void print(Path file) throws IOException {
        try {
            read(file).forEach((key, value) -> System.out.println(encode(key) + " " + encode(value)));
        } catch (IllegalArgumentException error) {
            System.out.println("refused");
        }
    }

    private static String encode(Object text) {
        return "=" + Base64.getEncoder().encodeToString(((String) text).getBytes(StandardCharsets.UTF_16BE));
    }
}
