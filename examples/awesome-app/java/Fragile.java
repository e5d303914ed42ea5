import java.io.IOException;
import java.net.URL;
import java.nio.charset.StandardCharsets;

/**
 * awesome-app as many applications are: it fetches its log settings once, at its start, and exits
 * if that fails.
 */
final class Fragile {
  public static void main(String[] args) throws IOException {
    var url = System.getenv("CONFIG_URL");
    App.log(App.Level.INFO, "starting awesome-app using Java " + Runtime.version() + " with log settings from " + url);
    var level = load(url);
    App.least = level;
    App.serve(() -> new App.State(level, "provider", ""));
  }

  private static App.Level load(String url) {
    try (var body = new URL(url).openStream()) { // the fault: no second try, no limit of time, nothing to go on with
      return App.parse(new String(body.readAllBytes(), StandardCharsets.UTF_8));
    } catch (IOException | IllegalArgumentException e) {
      throw new IllegalStateException("Logging system failed to initialize using configuration from '" + url + "'", e);
    }
  }
}
