package controlplane

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outrider.dev/internal/core/controlplane/conns"
	"outrider.dev/internal/core/controlplane/webhook"
	"outrider.dev/internal/core/xds"
)

// Metrics of the control plane, by their descriptions.
var (
	streams   = describe("outriderd_xds_streams", "Streams that are open.")
	requests  = describe("outriderd_xds_requests_total", "Requests of proxies, including those that only accept or reject.")
	messages  = describe("outriderd_xds_messages_total", "Messages to proxies.")
	bytesSent = describe("outriderd_xds_bytes_total", "Bytes of messages to proxies, before the transport.")
	rejected  = describe("outriderd_xds_rejected_total", "Messages that a proxy rejected.")
	timeouts  = describe("outriderd_xds_timeouts_total", "Streams ended because a message was not taken in time.")
	refusals  = describe("outriderd_xds_refused_total", "Streams that ended because of what their proxy did: a limit, a claim that its certificate contradicts, no request in time.")
	slowed    = describe("outriderd_xds_throttled_total", "Requests of proxies that exceeded their rate of subscriptions, so that the next one had to wait.")
	sending   = describe("outriderd_xds_send_seconds", "How long it took to hand over a message.")
	services  = describe("outriderd_mesh_services", "Services of the mesh.")
	workloads = describe("outriderd_mesh_workloads", "Pods and hosts of the mesh.")
	problems  = describe("outriderd_mesh_problems", "Manifests or objects with a mistake, which are not used as they are.")
	troubles  = describe("outriderd_kubernetes_failing_requests", "Requests that the API server refuses or does not answer at present.")
	rootsNow  = describe("outriderd_roots", "Roots that are trusted: more than one during a rotation.")
	signsTill = describe("outriderd_authority_expiry_timestamp_seconds", "When the certificate that signs others ends, in Unix time.")

	unenforced = prometheus.NewDesc("outriderd_mesh_unenforced", "Objects that forbid something and are not enforced as they are written, by kind.", []string{"kind"}, nil)

	diagnoses = prometheus.NewDesc("outriderd_diagnoses_total", "Diagnoses of injected pods that restarted or are slow to get ready, by cause: a code of outrider explain, or undecided.", []string{"cause"}, nil)

	connections = prometheus.NewDesc("outriderd_connections", "Connections that are open, with and without a certificate of the mesh.", []string{"identity"}, nil)
	refused     = prometheus.NewDesc("outriderd_connections_refused_total", "Connections that were closed: too many in a short time from one address (rate), too many without a certificate, before the handshake or after it (anonymous), without a valid TLS handshake in time (handshake), too many of one identity at one address (client), too many calls of one (calls), too many bytes without an identity (bytes), by the client before its turn (gone).", []string{"reason"}, nil)

	reviews       = prometheus.NewDesc("outriderd_webhook_reviews_total", "Reviews of pods, by outcome.", []string{"code"}, nil)
	imageLookups  = describe("outriderd_image_lookups_total", "Images that were looked up at their registries; answers from the cache are not counted.")
	imageFailures = describe("outriderd_image_lookup_failures_total", "Images that were looked up without finding their command.")
	reviewing     = describe("outriderd_webhook_review_seconds", "How long a review took, its body included.")
)

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, nil, nil)
}

// metrics is a collector that reads the current values at each scrape.
type metrics struct{ p *plane }

func (m *metrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

func (m *metrics) Collect(out chan<- prometheus.Metric) {
	number := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		out <- prometheus.MustNewConstMetric(d, kind, v)
	}
	var sum xds.Counters
	for _, s := range m.p.discovery() {
		c := s.Counters()
		sum.Streams += c.Streams
		sum.Requests += c.Requests
		sum.Messages += c.Messages
		sum.Bytes += c.Bytes
		sum.Rejected += c.Rejected
		sum.Timeouts += c.Timeouts
		sum.Refused += c.Refused
		sum.Slowed += c.Slowed
		sum.SendDuration.Sum += c.SendDuration.Sum
		for i, n := range c.SendDuration.Buckets {
			sum.SendDuration.Buckets[i] += n
		}
	}
	number(streams, prometheus.GaugeValue, float64(sum.Streams))
	number(requests, prometheus.CounterValue, float64(sum.Requests))
	number(messages, prometheus.CounterValue, float64(sum.Messages))
	number(bytesSent, prometheus.CounterValue, float64(sum.Bytes))
	number(rejected, prometheus.CounterValue, float64(sum.Rejected))
	number(timeouts, prometheus.CounterValue, float64(sum.Timeouts))
	number(refusals, prometheus.CounterValue, float64(sum.Refused))
	number(slowed, prometheus.CounterValue, float64(sum.Slowed))
	out <- histogram(sending, xds.SendBuckets[:], sum.SendDuration.Buckets[:], sum.SendDuration.Sum)
	m.connections(out)
	m.webhook(out)

	current, _ := m.p.mesh.Current()
	s, w := current.Len()
	wrong, _ := m.p.mesh.Problems()
	number(services, prometheus.GaugeValue, float64(s))
	number(workloads, prometheus.GaugeValue, float64(w))
	number(problems, prometheus.GaugeValue, float64(len(wrong)))
	number(rootsNow, prometheus.GaugeValue, float64(len(m.p.authority.Roots())))
	number(signsTill, prometheus.GaugeValue, float64(m.p.authority.Expiry().Unix()))
	guards := map[string]int{}
	for _, list := range current.Ignored() { // any order: the values are summed
		for _, o := range list {
			if o.Guards {
				guards[o.Kind]++
			}
		}
	}
	for kind, n := range guards { // any order: metrics are sorted
		out <- prometheus.MustNewConstMetric(unenforced, prometheus.GaugeValue, float64(n), kind)
	}
	if m.p.cluster != nil {
		number(troubles, prometheus.GaugeValue, float64(len(m.p.cluster.Trouble())))
	}
	if m.p.o.Diagnoser != nil {
		for code, n := range m.p.o.Diagnoser.Counts() { // any order: metrics are sorted
			out <- prometheus.MustNewConstMetric(diagnoses, prometheus.CounterValue, float64(n), code)
		}
	}
}

// connections adds the numbers of connections on all gRPC ports.
func (m *metrics) connections(out chan<- prometheus.Metric) {
	var sum conns.Counters
	for _, on := range []port{m.p.secure, m.p.plain} {
		if on.listener == nil {
			continue
		}
		c := on.listener.Counters()
		sum.Anonymous += c.Anonymous
		sum.Identified += c.Identified
		for i, n := range c.Refused {
			sum.Refused[i] += n
		}
	}
	out <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(sum.Anonymous), "no")
	out <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(sum.Identified), "yes")
	for i, n := range sum.Refused {
		out <- prometheus.MustNewConstMetric(refused, prometheus.CounterValue, float64(n), conns.Reason(i).String())
	}
}

// webhook adds the numbers of reviews, if the webhook is served.
func (m *metrics) webhook(out chan<- prometheus.Metric) {
	if m.p.admission.webhook == nil {
		return
	}
	c := m.p.admission.webhook.Counters()
	for code, n := range c.Reviews {
		out <- prometheus.MustNewConstMetric(reviews, prometheus.CounterValue, float64(n), string(code))
	}
	if images := m.p.o.Injection.Images; images != nil {
		c := images.Counters()
		out <- prometheus.MustNewConstMetric(imageLookups, prometheus.CounterValue, float64(c.Lookups))
		out <- prometheus.MustNewConstMetric(imageFailures, prometheus.CounterValue, float64(c.Failed))
	}
	out <- histogram(reviewing, webhook.Buckets[:], c.Duration.Counts[:], c.Duration.Sum)
}

// histogram converts counts to a Prometheus histogram, whose buckets are cumulative.
func histogram[N ~int | ~int64 | ~uint64](d *prometheus.Desc, bounds []time.Duration, counts []N, sum time.Duration) prometheus.Metric {
	cumulative := map[float64]uint64{}
	var count uint64
	for i, n := range counts {
		count += uint64(n)
		if i < len(bounds) {
			cumulative[bounds[i].Seconds()] = count
		}
	}
	return prometheus.MustNewConstHistogram(d, count, sum.Seconds(), cumulative)
}
