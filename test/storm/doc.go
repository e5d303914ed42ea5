// Package storm kills a control plane with many proxies, which all connect again at once, and
// checks that it serves them: without work for a client that has given up, and within its memory.
//
//	go test ./test/storm          # 500 proxies, two kills
//	make storm                    # 5,000 proxies, three kills
package storm
