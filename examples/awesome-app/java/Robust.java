import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * awesome-app, robust: it starts at once with the settings that are available locally, and uses
 * those of the configuration server when they arrive.
 */
final class Robust {
  private static final String EMBEDDED = "level=INFO\n";
  private static final Duration LIMIT = Duration.ofSeconds(2); // time limit of a fetch: once for the header, once for the body
  private static final int SIZE = 64 << 10; // maximum size of a document in bytes
  private static final double FIRST = 0.5, LONGEST = 300; // longest pause before the first retry, which doubles, and its maximum, in seconds

  private static volatile App.State state = new App.State(null, "", "");

  public static void main(String[] args) throws IOException {
    var url = App.variable("CONFIG_URL", "");
    var refresh = App.variable("REFRESH", "60");
    var lastGood = App.variable("LAST_GOOD", "");
    if (!url.matches("(https?://.+)?")) {
      App.refuse("CONFIG_URL is \"" + url + "\"; it must begin with http:// or https://");
    }
    if (!refresh.matches("[1-9][0-9]{0,3}")) {
      App.refuse("REFRESH is \"" + refresh + "\"; it must be a number of seconds, from 1 to 9999");
    }
    App.log(App.Level.INFO, "starting awesome-app using Java " + Runtime.version() + " with log settings from " + url);
    begin(lastGood);
    App.serve(() -> state);
    if (!url.isEmpty()) {
      follow(URI.create(url), Integer.parseInt(refresh), lastGood); // never returns; the threads of serve answer requests
    }
  }

  private static void begin(String lastGood) throws IOException {
    use(EMBEDDED, "embedded");
    if (!lastGood.isEmpty() && Files.exists(Path.of(lastGood))) {
      try {
        use(Files.readString(Path.of(lastGood)), "last good");
      } catch (IOException | IllegalArgumentException e) {
        App.log(App.Level.WARN, lastGood + " is passed over: " + e);
      }
    }
  }

  /** Uses the settings of a document. If the document is bad, it throws, and the settings stay. */
  private static void use(String document, String source) throws IOException {
    var level = App.parse(document);
    if (level != state.level() || !source.equals(state.source())) {
      App.log(App.Level.INFO, "log settings in use: level " + level + ", source " + source);
    }
    App.least = level;
    state = new App.State(level, source, "");
  }

  /** Fetches for ever. Pauses are random, so that processes that start together do not fetch together. */
  private static void follow(URI url, int refresh, String lastGood) {
    var client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(LIMIT).build();
    for (int failures = 0; ; ) {
      var random = ThreadLocalRandom.current();
      double pause = refresh * random.nextDouble(0.5, 1.5);
      try {
        var document = fetch(client, url);
        use(document, "provider");
        keep(document, lastGood);
        failures = 0;
      } catch (Exception e) { // catches everything, because the loop must never end
        App.log(App.Level.WARN, "log settings stay as they are: " + url + ": " + e);
        state = new App.State(state.level(), state.source(), e.toString().replace("\n", " "));
        pause = random.nextDouble() * Math.min(FIRST * Math.pow(2, failures++), LONGEST);
      }
      try {
        TimeUnit.MILLISECONDS.sleep((long) (pause * 1000));
      } catch (InterruptedException e) {
        return;
      }
    }
  }

  private static String fetch(HttpClient client, URI url) throws IOException, InterruptedException {
    var answer = client.send(HttpRequest.newBuilder(url).timeout(LIMIT).build(), BodyHandlers.ofInputStream());
    try (var body = answer.body()) {
      if (answer.statusCode() != 200) {
        throw new IOException("the centre answers " + answer.statusCode());
      }
      // The timeout of a request covers only the header of the response, so this closes a late body.
      var late = CompletableFuture.runAsync(() -> close(body), CompletableFuture.delayedExecutor(LIMIT.toMillis(), TimeUnit.MILLISECONDS));
      var document = body.readNBytes(SIZE + 1);
      late.cancel(false);
      if (document.length > SIZE) {
        throw new IOException("the answer has more than " + SIZE + " bytes");
      }
      return new String(document, StandardCharsets.UTF_8);
    }
  }

  private static void close(InputStream body) {
    try {
      body.close();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Stores the last good document. The file always contains the previous or the new one as a whole. */
  private static void keep(String document, String lastGood) {
    if (lastGood.isEmpty()) {
      return;
    }
    try {
      var file = Path.of(lastGood + ".tmp");
      Files.writeString(file, document);
      Files.move(file, Path.of(lastGood), StandardCopyOption.ATOMIC_MOVE);
    } catch (IOException e) { // such as a full disk: the document is in use anyway
      App.log(App.Level.WARN, lastGood + " is not written: " + e);
    }
  }
}
