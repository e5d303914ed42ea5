// Package bootconfig starts a program with the configuration that is at hand, and applies that of
// a configuration centre when it comes, without a restart.
//
// [Open] returns at once, with the first of these that is there and valid:
//
//  1. the last good document, which an earlier process kept on disk ([Options].LastGood);
//  2. a file ([Options].File);
//  3. a document that is embedded in the program ([Options].Embedded);
//  4. a value of the program ([Options].Default).
//
// From then on a [Provider] is fetched in the background. A document that decodes and is valid
// replaces the value in one atomic step; every other one is reported, and the value stays.
//
//	//go:embed settings.json
//	var embedded []byte
//
//	centre, err := bootconfig.NewHTTP("https://centre.example/settings/shop", bootconfig.HTTPOptions{})
//	if err != nil {
//		return err
//	}
//	config, err := bootconfig.Open(ctx, bootconfig.Options[Settings]{
//		Embedded: embedded,
//		Validate: Settings.Validate,
//		Provider: centre,
//		LongPoll: time.Minute,
//		LastGood: "/var/lib/shop/settings",
//	})
//	if err != nil {
//		return err // an option is wrong; a centre that is away is not an error
//	}
//	defer config.Close()
//	config.OnChange(func(s bootconfig.Snapshot[Settings]) { level.Set(s.Value.LogLevel) })
//
// # What holds
//
//   - Open does not touch the network. It reads at most three local files of bounded size. To wait
//     for the centre is a call of its own, with a deadline: [Config.Wait].
//   - An option that cannot work is an error of Open, not of the first failure.
//   - [Config.Get] is one atomic load: no lock, no allocation, never half of a value.
//   - A good value is never replaced by a bad one. A document is bad when it is too large, does
//     not decode, is not valid, or makes the decoder or the validation panic.
//   - A fetch ends at its deadline. When the provider does not, it is left alone a second later:
//     its result is dropped, and it is not called again before it has returned.
//   - Each function of [Config.OnChange] gets values in their order, and always the last one. When
//     it is slower than the changes it misses those between. One that blocks or panics delays
//     neither the others nor the refresh.
//   - The last good document is written to a temporary file that is renamed, so that a reader
//     finds the one before or the one after, also when the process or the machine ends meanwhile.
//     A disk that is full or read-only is reported; everything else goes on.
//   - Errors, [Snapshot] and the String methods of providers contain no header, no user
//     information and no query of a URL.
//
// # Many processes, one centre
//
// The time to the next fetch is random, so that processes that were started together do not stay
// together:
//
//   - after an answer: 0.5 to 1.5 of Options.Refresh;
//   - after a long poll that was held, or brought a change: up to 5 s, at most a tenth of Refresh;
//   - after a failure, before the first answer: up to 0.5 s, which doubles with each failure;
//   - after a failure, later: up to Refresh, which doubles with each failure. When a centre with
//     10,000 long polls restarts, they return within a Refresh and not within a second;
//   - the doubling ends at 5 minutes, or at Refresh where that is longer. A centre that says
//     Retry-After is given that time, at most an hour, before the random one begins.
//
// The version of the last good document is kept with it: after a restart it costs the centre a
// "304 Not Modified" and no document.
//
// # Documents of other versions of the program
//
// Options.Schema names what the program understands. A last good document of another schema is
// not read; it is kept aside as LastGood + ".other" when the next one is written, and read from
// there by a program that is rolled back. A corrupt one is kept as LastGood + ".corrupt". There is
// at most one file of each, so that nothing grows.
//
// [JSON], the default decoder, ignores fields that it does not know, so that a field can be added
// at the centre before the last old program has gone. Absent fields keep the value of
// Options.Default.
//
// # Providers
//
// [HTTP] (ETag and long poll) and [File] (a file, or a mounted ConfigMap) are here, and package
// outrider.dev/bootconfig/apollo beside them: the standard library is all that they need. Those
// that need a client are modules of their own, so that nothing else comes with them:
// outrider.dev/bootconfig/kubernetes, /consul and /nacos; /koanf decodes other formats and lays
// the environment over a document. A [Provider] of your own is one method, and a name.
//
// # Versions
//
// The module follows Semantic Versioning 2.0.0. Within a major version no exported name is removed
// or changes its meaning, options get defaults that keep what was, an interface that users
// implement ([Provider]) gets no method, and the file of Options.LastGood stays readable. The
// texts of errors, and the random times above, are not part of it. Go's two newest releases are
// supported; a release that ends the support of a Go is a minor version.
package bootconfig
