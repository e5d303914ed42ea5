// Command coredns is CoreDNS with the plugins that a test cluster needs. The full list would pull
// in the client libraries of three cloud vendors.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// A query passes the plugins in this order.
	dnsserver.Directives = []string{"bind", "ready", "errors", "log", "cache", "kubernetes"}
	coremain.Run()
}
