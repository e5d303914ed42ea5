package mesh

import (
	"fmt"
	"net/netip"
	"testing"
)

const many = 10_000

// large is a mesh of 10,000 services in 100 namespaces, each with a slice and a pod.
func large(b *Builder) { sized(b, many) }

func sized(b *Builder, n int) {
	for i := range n {
		namespace, name := fmt.Sprintf("ns-%d", i%100), fmt.Sprintf("svc-%d", i)
		ip := address(i, 0)
		b.Set(svc(namespace, name, netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}).String(), port("http", 80)),
			slice(namespace, name+"-1", name, SlicePort{"http", 8080}, ip), pod(namespace, name+"-0", ip, "app", name))
	}
}

func address(i, generation int) string {
	return netip.AddrFrom4([4]byte{10, byte(generation % 2), byte(i >> 8), byte(i)}).String()
}

func BenchmarkFirstMesh(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		builder := NewBuilder(Config{})
		large(builder)
		builder.Mesh()
	}
}

// The cost of one change must not grow with the mesh.
func BenchmarkOneEndpoint(b *testing.B) {
	for _, n := range []int{100, many} {
		b.Run(fmt.Sprintf("of %d services", n), func(b *testing.B) { oneEndpoint(b, n) })
	}
}

func oneEndpoint(b *testing.B, n int) {
	builder := NewBuilder(Config{})
	sized(builder, n)
	old := builder.Mesh()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		builder.Set(slice("ns-7", "svc-7-1", "svc-7", SlicePort{"http", 8080}, address(7, 0), fmt.Sprintf("10.77.0.%d", 1+i%2)))
		next := builder.Mesh()
		services, _ := Changed(old, next)
		if next.ByName("ns-7", "svc-7") == old.ByName("ns-7", "svc-7") || len(services) != 1 {
			b.Fatalf("%d services changed", len(services))
		}
		old = next
	}
}

func BenchmarkOnePod(b *testing.B) {
	builder := NewBuilder(Config{})
	large(builder)
	old := builder.Mesh()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		builder.Set(pod("ns-7", "svc-7-0", address(7, 0), "app", "svc-7", "v", fmt.Sprint(i%2)))
		next := builder.Mesh()
		if services, workloads := Changed(old, next); i > 1 && (len(services) != 1 || len(workloads) != 1) {
			b.Fatalf("%d services and %d workloads changed", len(services), len(workloads))
		}
		old = next
	}
}

func BenchmarkLookUps(b *testing.B) {
	builder := NewBuilder(Config{})
	large(builder)
	m := builder.Mesh()
	vip := netip.AddrFrom4([4]byte{10, 200, 0, 7})
	b.ReportAllocs()
	for b.Loop() {
		if m.ByAddress(vip) == nil || m.Resolve("svc-7", "ns-7") == nil {
			b.Fatal("not found")
		}
	}
}

// Services that all stand before one pod, as in a mesh that a test makes of one server.
func BenchmarkServicesOfOnePod(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		builder := NewBuilder(Config{})
		builder.Set(pod("ns", "server", "10.0.0.1", "app", "server"))
		for i := range many {
			vip := netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}).String()
			builder.Set(selecting(svc("ns", fmt.Sprintf("svc-%d", i), vip, port("http", 80)), "app", "server"))
		}
		m := builder.Mesh()
		if got := len(m.ServicesOf(m.Workloads()[0])); got != many {
			b.Fatalf("%d services of the pod", got)
		}
	}
}
