// An app behind the sidecar that dispatches by the routing key. Java 17 or later, without a library.
//
//     usage: java App.java [PORT]      default 8080, 0 takes a free one; listens on 127.0.0.1 only
//
// To try retries: for a message with the header closed=2 the warehouse is closed for the first two attempts.

import com.sun.net.httpserver.Headers;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.function.UnaryOperator;

public class App {
    // One function for each routing key. It is the key of the first publish, also of a message that was retried or
    // redriven. A real app reads the body with its JSON library.
    static final Map<String, UnaryOperator<String>> HANDLERS = Map.of(
        "order.created", order -> "reserved " + order,
        "order.cancelled", order -> "released " + order,
        "order.shipped", order -> "invoiced " + order);

    // Delivery is at least once. A real app keeps the ids in its database and adds one in the transaction that does the
    // work.
    static final Set<String> done = new HashSet<>();
    static final Map<String, Integer> attempts = new HashMap<>();

    // warehouse stands for what the work needs and what is away sometimes.
    static void warehouse(String id, int closed) {
        if (attempts.merge(id, 1, Integer::sum) <= closed) {
            throw new IllegalStateException("the warehouse is closed");
        }
    }

    static synchronized void handle(String key, String id, int closed, String body) {
        UnaryOperator<String> work = HANDLERS.get(key);
        if (work == null || done.contains(id)) {
            return; // a message with another key is not for this app
        }
        warehouse(id, closed);
        System.out.println(key + " " + id + ": " + work.apply(body));
        done.add(id);
    }

    static void serve(HttpExchange exchange) throws IOException {
        try (exchange) {
            Headers h = exchange.getRequestHeaders();
            String body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
            String closed = h.getOrDefault("Amqp-Header-Closed", List.of("0")).get(0);
            try {
                handle(h.getFirst("Amqp-Routing-Key"), h.getFirst("Amqp-Message-Id"), Integer.parseInt(closed), body);
                exchange.sendResponseHeaders(204, -1);
            } catch (RuntimeException e) {
                // The sidecar retries the message. An operator finds this JSON, which says why, beside a parked message.
                String why = String.valueOf(e.getMessage()).replaceAll("[\"\\\\\\p{Cntrl}]", " ");
                byte[] json = ("{\"error\":\"" + why + "\"}").getBytes(StandardCharsets.UTF_8);
                exchange.getResponseHeaders().set("Content-Type", "application/json");
                exchange.sendResponseHeaders(e instanceof IllegalStateException ? 503 : 500, json.length);
                exchange.getResponseBody().write(json);
            }
        }
    }

    public static void main(String[] args) throws IOException {
        int port = args.length > 0 ? Integer.parseInt(args[0]) : 8080;
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", App::serve);
        server.start();
        System.out.println("listening on 127.0.0.1:" + server.getAddress().getPort());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> server.stop(1))); // what is in flight has a second
    }
}
