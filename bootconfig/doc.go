// Package bootconfig starts a program with the configuration that is available locally. When the configuration of
// a configuration server (Apollo, Consul, Nacos, any HTTP server) arrives, it applies that without a restart.
//
// [Open] returns at once, with the first of these that exists and is valid:
//
//  1. the last good document, which an earlier process stored on disk ([Options].LastGood);
//  2. a file ([Options].File);
//  3. a document that is embedded in the program ([Options].Embedded);
//  4. a value of the program ([Options].Default).
//
// From then on it fetches documents from a [Provider] in the background. A document that decodes and is valid
// replaces the value in one atomic step. Any other document is reported, and the value stays.
//
//	//go:embed settings.json
//	var embedded []byte
//
//	server, err := bootconfig.NewHTTP("https://config.example/settings/shop", bootconfig.HTTPOptions{})
//	if err != nil {
//		return err
//	}
//	config, err := bootconfig.Open(ctx, bootconfig.Options[Settings]{
//		Embedded: embedded,
//		Validate: Settings.Validate,
//		Provider: server,
//		LongPoll: time.Minute,
//		LastGood: "/var/lib/shop/settings",
//	})
//	if err != nil {
//		return err // an option is invalid; an unreachable server is not an error
//	}
//	defer config.Close()
//	config.OnChange(func(s bootconfig.Snapshot[Settings]) { level.Set(s.Value.LogLevel) })
//
// # Guarantees
//
//   - Open does not use the network. It reads at most three local files of bounded size. A program that must wait
//     for the server calls [Config.Wait] with a deadline.
//   - An invalid option is an error of Open at once, not later when the option takes effect.
//   - [Config.Get] is one atomic load: it takes no lock, allocates nothing, and never returns a half-updated
//     value.
//   - A bad document never replaces a good value. A document is bad if it is too large, does
//     not decode, is not valid, or makes the decoder or the validation panic.
//   - A fetch ends at its deadline. If the provider does not return, it is abandoned a second later:
//     its result is dropped, and it is not called again before it has returned.
//   - Each function of [Config.OnChange] gets values in order, and always the last one. If
//     it is slower than the changes, it misses values in between. A function that blocks or panics delays
//     neither the others nor the refresh.
//   - The last good document is written to a temporary file, which is then renamed. So a reader finds the
//     previous or the new document, even if the process or the machine stops during the write. A full or
//     read-only disk is reported; everything else continues.
//   - Errors, [Snapshot] and the String methods of providers contain no header, no user
//     information and no query of a URL.
//
// # Many processes, one server
//
// The time to the next fetch is random, so that processes which start together do not keep fetching
// together:
//
//   - after an answer: 0.5 to 1.5 times Options.Refresh;
//   - after a long poll that the server held, or that returned a new document: up to 5 s, at most a tenth of
//     Refresh;
//   - after a failure, before the first answer: up to 0.5 s, which doubles with each failure;
//   - after a failure, later: up to Refresh, which doubles with each failure. When a server with 10,000 long
//     polls restarts, the clients come back spread over one Refresh, not within a second;
//   - the doubling ends at 5 minutes, or at Refresh if that is longer. If a server sends Retry-After, the client
//     first waits for that time (at most an hour) and then for the random time.
//
// The version of the last good document is stored with it, so after a restart of the program the server can
// answer "304 Not Modified" instead of sending the document again.
//
// # Documents of other versions of the program
//
// Options.Schema names the format that the program understands. Open does not read a last good document with
// another schema. When the next document is written, the one with the other schema is renamed to LastGood +
// ".other"; after a rollback, the old program reads it there. A corrupt file is renamed to LastGood + ".corrupt".
// There is at most one file of each kind.
//
// [JSON], the default decoder, ignores unknown fields, so that a field can be added at the server while old
// programs still run. Absent fields keep the value of Options.Default.
//
// # Providers
//
// [HTTP] (ETag and long poll) and [File] (a file, or a mounted ConfigMap) are in this package, and package
// outrider.dev/bootconfig/apollo is in the same module; they need only the standard library. Providers that need
// a client are modules of their own, so that programs link only the clients that they use:
// outrider.dev/bootconfig/kubernetes, /consul and /nacos. Module /koanf decodes other formats and lets
// environment variables override fields of a document. A [Provider] of your own needs one method and a name.
//
// # Versions
//
// The module follows Semantic Versioning 2.0.0. Within a major version, no exported name is removed or
// changes its meaning, defaults of new options keep the previous behaviour, the interface that users
// implement ([Provider]) gets no method, and the file of Options.LastGood stays readable. The texts of
// errors and the random times above may change. The two latest releases of Go are supported; dropping
// support for a release of Go takes a minor version.
package bootconfig
