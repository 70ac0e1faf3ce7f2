import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;

public class App {
    static final ObjectMapper JSON = new ObjectMapper();
    static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    static void serve(HttpExchange exchange) throws IOException {
        try (exchange) {
            JsonNode order = JSON.readTree(exchange.getRequestBody());
            OUT.println(exchange.getRequestHeaders().getFirst("Amqp-Routing-Key") + " " + order);
            exchange.sendResponseHeaders(204, -1);
        } catch (JsonProcessingException e) {
            exchange.sendResponseHeaders(400, -1);
        }
    }

    public static void main(String[] args) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.createContext("/", App::serve);
        server.start();
        OUT.println("listening on 127.0.0.1:" + server.getAddress().getPort());
    }
}
