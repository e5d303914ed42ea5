// Command coredns is CoreDNS with the plugins that a test cluster needs. The full list
// would bring in the client libraries of three cloud vendors.
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
	// The order is that in which a query passes the plugins.
	dnsserver.Directives = []string{"bind", "ready", "errors", "log", "cache", "kubernetes"}
	coremain.Run()
}
