import java.net.URI;
import java.net.http.*;
import java.time.*;
import java.time.format.DateTimeFormatter;

public class App {
  static final String url = System.getenv("CONFIG_URL"), mode = System.getenv("MODE");
  static final HttpClient client = HttpClient.newHttpClient();

  static void log(String level, String text) {
    String now = LocalDateTime.now(ZoneOffset.UTC).format(DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss.SSS"));
    System.out.println(now + " " + level + " [main] com.example.App - " + text);
  }

  static String get() throws Exception {
    var r = client.send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString());
    if (r.statusCode() != 200) throw new IllegalStateException("GET " + url + ": status " + r.statusCode() + ": " + r.body());
    return r.body();
  }

  public static void main(String[] args) throws Exception {
    log("INFO", "starting with configuration from " + url);
    while (true) {
      try {
        get();
        log("INFO", "configuration loaded");
        break;
      } catch (Exception e) {
        if (mode.equals("swallow")) {
          log("WARN", "could not read the configuration from " + url + ", using defaults: " + e);
          break;
        }
        if (!mode.equals("retry")) throw e;
        log("ERROR", "no configuration yet: " + e);
        Thread.sleep(1000);
      }
    }
    if (mode.equals("crash")) throw new NumberFormatException("For input string: \"8k\" under key pool.size");
    if (mode.equals("job")) { log("INFO", "done, 14 records written"); return; }
    if (mode.equals("calls")) Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      log("INFO", "shutting down, flushing 20 orders");
      for (int i = 0; i < 20; i++) {
        try { get(); Thread.sleep(150); } catch (Exception e) { log("ERROR", "order " + i + " is lost: GET " + url + ": " + e); }
      }
    }));
    Thread.sleep(600_000);
  }
}
