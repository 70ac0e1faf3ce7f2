import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.nio.charset.StandardCharsets;

public class Send {
    public static void main(String[] args) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URL"));
        try (Connection connection = factory.newConnection(); Channel channel = connection.createChannel()) {
            String order = "{\"id\":7,\"name\":\"Zo\u00eb\",\"price\":1.5}";
            channel.basicPublish(System.getenv("EXCHANGE"), System.getenv("KEY"), null, order.getBytes(StandardCharsets.UTF_8));
        }
    }
}
