import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;

import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import javax.jms.Connection;
import javax.jms.InvalidClientIDException;
import javax.jms.InvalidDestinationException;
import javax.jms.InvalidSelectorException;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.QueueBrowser;
import javax.jms.Session;
import javax.jms.Topic;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.After;
import org.junit.Test;

/** What JMS 2.0 adds to Joram's tests, which are of 1.1: shared subscriptions; and what these leave out. */
public class SubscriptionsTest {
  private static final int PATIENCE = 5000;
  private static final int MOMENT = 150;
  private final List<Connection> connections = new ArrayList<>();

  private Session connect(String clientId) throws JMSException {
    Connection connection = new JmsConnectionFactory(RunJoram.url()).createConnection();
    connections.add(connection);
    if (clientId != null) {
      connection.setClientID(clientId);
    }
    connection.start();
    return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
  }

  @After
  public void close() throws JMSException {
    for (Connection each : connections) {
      each.close();
    }
  }

  private static void send(Session session, Topic topic, int count) throws JMSException {
    MessageProducer producer = session.createProducer(topic);
    for (int number = 0; number < count; number++) {
      Message message = session.createTextMessage("m" + number);
      message.setIntProperty("number", number);
      producer.send(message);
    }
    producer.close();
  }

  private static int count(MessageConsumer... consumers) throws JMSException {
    int count = 0;
    for (MessageConsumer each : consumers) {
      while (each.receive(MOMENT) != null) {
        count++;
      }
    }
    return count;
  }

  @Test
  public void sharedByTwoConsumersOfOneConnection() throws JMSException {
    Session session = connect("shared-1");
    Topic topic = session.createTopic("shared-1");
    MessageConsumer one = session.createSharedConsumer(topic, "name");
    MessageConsumer two = session.createSharedConsumer(topic, "name");
    MessageConsumer other = session.createSharedConsumer(topic, "other");
    send(session, topic, 10);
    assertEquals(10, count(one, two));
    assertEquals(10, count(other));
    one.close();
    send(session, topic, 3);
    assertEquals(3, count(two));
    two.close();
    send(session, topic, 3);
    assertEquals("it ends with the last of them", 0, count(session.createSharedConsumer(topic, "name")));
  }

  @Test
  public void sharedByConnectionsWithoutClientId() throws JMSException {
    Session first = connect(null);
    Session second = connect(null);
    Topic topic = first.createTopic("shared-2");
    MessageConsumer one = first.createSharedConsumer(topic, "global");
    MessageConsumer two = second.createSharedConsumer(topic, "global");
    MessageConsumer durable = first.createSharedDurableConsumer(topic, "global");
    MessageConsumer same = second.createSharedDurableConsumer(topic, "global");
    send(first, topic, 10);
    assertEquals(10, count(one, two));
    assertEquals("one of the same name that lasts is another one", 10, count(durable, same));
    durable.close();
    same.close();
    send(first, topic, 2);
    MessageConsumer again = second.createSharedDurableConsumer(topic, "global");
    assertEquals(2, count(again));
    again.close();
    first.unsubscribe("global");
    assertThrows(InvalidDestinationException.class, () -> second.unsubscribe("global"));
  }

  @Test
  public void clientIdsHaveSubscriptionsOfTheirOwn() throws JMSException {
    Session first = connect("mine");
    Session second = connect("yours");
    Topic topic = first.createTopic("shared-3");
    MessageConsumer one = first.createSharedDurableConsumer(topic, "name");
    MessageConsumer two = second.createSharedDurableConsumer(topic, "name");
    send(first, topic, 3);
    assertEquals(3, count(one));
    assertEquals(3, count(two));
    one.close();
    first.unsubscribe("name");
    send(first, topic, 3);
    assertEquals(3, count(two));
    two.close();
    second.unsubscribe("name");
  }

  @Test
  public void durableWithAnotherTopicOrSelectorIsNew() throws JMSException {
    Session session = connect("changing");
    Topic topic = session.createTopic("changing-1");
    Topic other = session.createTopic("changing-2");
    session.createDurableSubscriber(topic, "name").close();
    send(session, topic, 3);
    session.createDurableSubscriber(topic, "name", "number > 1", false).close();
    send(session, topic, 3);
    MessageConsumer selecting = session.createDurableSubscriber(topic, "name", "number > 1", false);
    assertEquals("what was kept before the selector is gone, and what it leaves out", 1, count(selecting));
    selecting.close();
    session.createDurableSubscriber(other, "name").close();
    send(session, topic, 3);
    send(session, other, 2);
    MessageConsumer moved = session.createDurableSubscriber(other, "name");
    assertEquals(2, count(moved));
    moved.close();
    session.unsubscribe("name");
    assertThrows(InvalidDestinationException.class, () -> session.unsubscribe("name"));
  }

  @Test
  public void noLocalLeavesOutWhatTheConnectionSent() throws JMSException {
    Session mine = connect("local");
    Session theirs = connect("other");
    Topic topic = mine.createTopic("local");
    MessageConsumer remote = mine.createConsumer(topic, null, true);
    MessageConsumer selecting = mine.createConsumer(topic, "number = 1", true);
    MessageConsumer all = mine.createConsumer(topic, null, false);
    mine.createDurableSubscriber(topic, "kept", null, true).close();
    send(mine, topic, 3);
    send(theirs, topic, 2);
    assertEquals(2, count(remote));
    assertEquals(1, count(selecting));
    assertEquals(5, count(all));
    MessageConsumer kept = mine.createDurableSubscriber(topic, "kept", null, true);
    assertEquals(2, count(kept));
    kept.close();
    mine.unsubscribe("kept");
  }

  @Test
  public void clientIdIsUsedOnceAtATime() throws JMSException {
    connect("sole");
    assertThrows(InvalidClientIDException.class, () -> connect("sole"));
    connections.get(0).close();
    assertNotNull(connect("sole"));
  }

  @Test
  public void selectorThatIsNone() throws JMSException {
    Session session = connect(null);
    Queue queue = session.createQueue("invalid");
    assertThrows(InvalidSelectorException.class, () -> session.createConsumer(queue, "number = = 1"));
    assertNotNull("the session goes on", session.createConsumer(queue, "number = 1"));
  }

  @Test
  public void selectorGoesByWhatTheReceiverSees() throws JMSException {
    Session session = connect(null);
    Queue queue = session.createQueue("headers");
    Message message = session.createTextMessage("x");
    message.setJMSType("order");
    session.createProducer(queue).send(message);
    session.createProducer(queue).send(session.createTextMessage("y"));
    String selector = "JMSMessageID = '" + message.getJMSMessageID() + "' AND JMSTimestamp = " + message.getJMSTimestamp();
    Message got = session.createConsumer(queue, selector + " AND JMSType = 'order'").receive(PATIENCE);
    assertEquals(message.getJMSMessageID(), got.getJMSMessageID());
  }

  @Test
  public void browserTakesNothing() throws JMSException {
    Session session = connect(null);
    Queue queue = session.createQueue("browsed");
    MessageProducer producer = session.createProducer(queue);
    for (int number = 0; number < 5; number++) {
      Message message = session.createTextMessage("m" + number);
      message.setIntProperty("number", number);
      producer.send(message);
    }
    for (int round = 0; round < 2; round++) {
      assertEquals(5, seen(session.createBrowser(queue)));
      assertEquals(2, seen(session.createBrowser(queue, "number > 2")));
    }
    MessageConsumer consumer = session.createConsumer(queue, "number = 4");
    assertEquals(4, consumer.receive(PATIENCE).getIntProperty("number"));
    consumer.close();
    assertEquals(4, seen(session.createBrowser(queue)));
    MessageConsumer rest = session.createConsumer(queue);
    assertEquals(0, rest.receive(PATIENCE).getIntProperty("number"));
    assertEquals(3, count(rest));
  }

  private static int seen(QueueBrowser browser) throws JMSException {
    int count = 0;
    for (Enumeration<?> each = browser.getEnumeration(); each.hasMoreElements(); each.nextElement()) {
      count++;
    }
    browser.close();
    return count;
  }

  @Test
  public void temporaryQueueGoesWithWhoMadeIt() throws JMSException {
    Session session = connect(null);
    Session other = connect(null);
    Queue temporary = session.createTemporaryQueue();
    other.createProducer(temporary).send(other.createTextMessage("x"));
    MessageConsumer consumer = session.createConsumer(temporary);
    assertNotNull(consumer.receive(PATIENCE));
    assertNull(consumer.receive(MOMENT));
    assertThrows(JMSException.class, () -> other.createConsumer(temporary));
    consumer.close();
    ((javax.jms.TemporaryQueue) temporary).delete();
    assertThrows(JMSException.class, () -> other.createProducer(temporary).send(other.createTextMessage("y")));
  }
}
