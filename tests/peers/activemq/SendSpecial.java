// Sends one message of a kind that STOMP cannot send, with the properties of a SOAP/JMS request, and may wait for the reply.
//
//   java -Dfactory=CLASS -cp LIB/* SendSpecial.java URL QUEUE KIND CONTENT_TYPE REPLY_TO WAIT_MILLISECONDS
//
// KIND: map stream object message null-text text bytes, or several with commas between. REPLY_TO: a queue's name, `temporary`, or `-` for none.
// The last line on standard output is JSON: the reply, or null.

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

public class SendSpecial {
    private static final String BODY = "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'><e:Body/></e:Envelope>";

    public static void main(String[] args) throws JMSException, ReflectiveOperationException {
        String queue = args[1];
        Class<?> factory = Class.forName(System.getProperty("factory"));
        Connection connection = ((ConnectionFactory) factory.getConstructor(String.class).newInstance(args[0]))
            .createConnection("admin", "admin");
        try {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Destination replyTo = destination(session, args[4]);
            long wait = Long.parseLong(args[5]);
            MessageConsumer replies = replyTo != null && wait > 0 ? session.createConsumer(replyTo) : null;
            Message request = null;
            for (String kind : args[2].split(",")) {
                request = make(session, kind);
                request.setStringProperty("SOAPJMS_bindingVersion", "1.0");
                request.setStringProperty("SOAPJMS_contentType", args[3]);
                request.setStringProperty("SOAPJMS_requestURI", "jms:queue:" + queue);
                request.setBooleanProperty("SOAPJMS_isFault", false);
                request.setJMSReplyTo(replyTo);
                session.createProducer(session.createQueue(queue)).send(request);
            }
            Message reply = replies == null ? null : replies.receive(wait);
            System.out.println(reply == null ? "null" : describe(request, reply));
        } finally {
            connection.close();
        }
    }

    private static Destination destination(Session session, String name) throws JMSException {
        return switch (name) {
            case "-" -> null;
            case "temporary" -> session.createTemporaryQueue();
            default -> session.createQueue(name);
        };
    }

    private static Message make(Session session, String kind) throws JMSException {
        switch (kind) {
            case "map":
                MapMessage map = session.createMapMessage();
                map.setString("envelope", BODY);
                map.setInt("number", 7);
                return map;
            case "stream":
                StreamMessage stream = session.createStreamMessage();
                stream.writeString(BODY);
                return stream;
            case "object":
                return session.createObjectMessage(BODY);
            case "message":
                return session.createMessage();
            case "null-text":
                return session.createTextMessage(null);
            case "text":
                return session.createTextMessage(BODY);
            case "bytes":
                BytesMessage bytes = session.createBytesMessage();
                bytes.writeBytes(BODY.getBytes(StandardCharsets.UTF_8));
                return bytes;
            default:
                throw new IllegalArgumentException("unknown kind of message: " + kind);
        }
    }

    private static String describe(Message request, Message reply) throws JMSException {
        List<String> properties = new ArrayList<>();
        for (Object name : Collections.list(reply.getPropertyNames())) {
            properties.add(quote((String) name) + ": " + quote(reply.getStringProperty((String) name)));
        }
        return "{\"type\": " + quote(type(reply)) + ", \"body\": " + quote(body(reply))
            + ", \"messageId\": " + quote(request.getJMSMessageID())
            + ", \"correlationId\": " + quote(reply.getJMSCorrelationID())
            + ", \"replyTo\": " + quote(reply.getJMSReplyTo() == null ? null : reply.getJMSReplyTo().toString())
            + ", \"properties\": {" + String.join(", ", properties) + "}}";
    }

    private static String type(Message message) {
        return message instanceof TextMessage ? "text" : message instanceof BytesMessage ? "bytes" : "other";
    }

    private static String body(Message message) throws JMSException {
        if (message instanceof TextMessage text) {
            return text.getText();
        }
        if (message instanceof BytesMessage bytes) {
            byte[] octets = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(octets);
            return new String(octets, StandardCharsets.UTF_8);
        }
        return null;
    }

    private static String quote(String text) {
        if (text == null) {
            return "null";
        }
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
