import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.StringReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Executors;
import java.util.function.Supplier;

/**
 * The parts of awesome-app that do not fetch settings: it logs, and serves. ../README.md describes
 * the behaviour in all languages.
 */
final class App {
  enum Level { DEBUG, INFO, WARN, ERROR }

  /** The content of /settings: the level in use, its source, and why the server's level is not used. */
  record State(Level level, String source, String error) {
    @Override
    public String toString() {
      return "level=%s%nsource=%s%nerror=%s%n".formatted(level, source, error);
    }
  }

  static volatile Level least = Level.INFO;

  private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss.SSS");

  private App() {}

  static void log(Level level, String message) {
    if (level.compareTo(least) >= 0) {
      var now = LocalDateTime.now(ZoneOffset.UTC).format(TIME);
      System.out.println(now + " " + level + " [" + Thread.currentThread().getName() + "] awesome-app : " + message);
    }
  }

  /** Returns the level in a document that has the format of {@link Properties}. */
  static Level parse(String document) throws IOException {
    var fields = new Properties();
    fields.load(new StringReader(document));
    var level = fields.getProperty("level");
    if (level == null) {
      throw new IllegalArgumentException("the document has no level");
    }
    try {
      return Level.valueOf(level);
    } catch (IllegalArgumentException e) {
      throw new IllegalArgumentException("level is \"" + level + "\"; it must be DEBUG, INFO, WARN or ERROR");
    }
  }

  static String variable(String name, String otherwise) {
    var value = System.getenv(name);
    return value == null || value.isEmpty() ? otherwise : value;
  }

  /** Ends the program because an environment variable is invalid. */
  static void refuse(String why) {
    log(Level.ERROR, "awesome-app cannot start: " + why);
    System.exit(2);
  }

  /** Starts to serve in background threads, and returns. */
  static void serve(Supplier<State> state) throws IOException {
    Map<String, Supplier<String>> pages = Map.of("/healthz", () -> "ok\n", "/settings", () -> state.get().toString());
    var server = HttpServer.create(new InetSocketAddress(Integer.parseInt(variable("PORT", "8080"))), 0);
    server.createContext("/", exchange -> {
      try (exchange) {
        var path = exchange.getRequestURI().getPath();
        log(Level.DEBUG, "request path=" + path);
        var body = pages.getOrDefault(path, () -> "not found\n").get().getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(pages.containsKey(path) ? 200 : 404, body.length);
        exchange.getResponseBody().write(body);
      }
    });
    server.setExecutor(Executors.newFixedThreadPool(4));
    server.start();
    log(Level.INFO, "awesome-app is ready on port " + server.getAddress().getPort());
  }
}
