// Package storm kills a control plane with many proxies, which all connect again at once, and
// checks that it serves them: without work for a client that has given up, and within its memory.
//
//	go test ./test/storm          # 600 proxies, one kill
//	make storm                    # 5,000 proxies, three kills
package storm
