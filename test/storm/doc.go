// Package storm kills a control plane with many proxies, which all reconnect at the same time, and
// checks that it serves them within its memory limit, and does no work for clients that have given up.
//
//	go test ./test/storm          # 600 proxies, one kill
//	make storm                    # 5,000 proxies, three kills
package storm
