package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/test/fleet"
)

// A setting describes the size of a mesh.
type setting struct {
	proxies, services int
}

func (s setting) String() string {
	return fmt.Sprintf("%d proxies, %d services", s.proxies, s.services)
}

// A bench has the parts that all settings share.
type bench struct {
	outriderd string
	storms    int
	changes   int
	idle      time.Duration
	table     *figures.Table
}

// uses is the number of services that a proxy uses.
const uses = 50

// settle is the time within which all effects of a change have arrived.
const settle = 500 * time.Millisecond

// measure measures one setting: several storms, each on a new outriderd, and then the changes on the
// last of these.
func (b *bench) measure(s setting) error {
	for round := range b.storms {
		if err := b.round(s, round == b.storms-1); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

func (b *bench) round(s setting, last bool) error {
	dir, err := os.MkdirTemp("", "bench-xds")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	mesh, state := filepath.Join(dir, "mesh"), filepath.Join(dir, "state")
	if err := os.Mkdir(mesh, 0o755); err != nil {
		return err
	}
	f, err := fleet.NewFolder(mesh, s.services, s.proxies)
	if err != nil {
		return err
	}
	authority, err := ca.NewAuthority(context.Background(), ca.AuthorityOptions{Store: ca.Directory(filepath.Join(state, "ca")), TrustDomain: fleet.TrustDomain})
	if err != nil {
		return err
	}
	all, err := fleet.New(fleet.Options{Proxies: s.proxies, Services: s.services, Uses: uses, Authority: authority})
	if err != nil {
		return err
	}
	server := &fleet.Server{Binary: b.outriderd, Mesh: mesh, State: state, Log: filepath.Join(dir, "log")}
	if err := server.Start(); err != nil {
		return err
	}
	defer server.Kill()
	m := &measurement{bench: b, setting: s, folder: f, fleet: all, server: server}
	if err := m.storm(); err != nil {
		return fmt.Errorf("%w; log of outriderd: %w", err, server.LastLog())
	}
	defer all.Disconnect()
	if !last {
		return nil
	}
	m.rest()
	if err := m.change(fleet.UsedByAll, s.proxies); err != nil {
		return err
	}
	return m.change(fleet.UsedByFew, fleet.FewUsers)
}

// A measurement is one outriderd with its proxies.
type measurement struct {
	*bench
	setting setting
	folder  *fleet.Folder
	fleet   *fleet.Fleet
	server  *fleet.Server
}

func (m *measurement) add(what string, value float64) {
	m.table.Add(m.setting.String(), what, value, "")
}

const (
	milliseconds = float64(time.Millisecond)
	mebibyte     = 1 << 20
	kibibyte     = 1 << 10
)

// storm connects all proxies at once.
func (m *measurement) storm() error {
	n := float64(m.setting.proxies)
	m.add("outriderd: exec to ready, ms", float64(m.server.ReadyTook)/milliseconds)
	m.add("outriderd: CPU to ready, ms", float64(m.server.Spent())/milliseconds)
	m.add("outriderd: memory before proxies, MiB", m.server.Resident()/mebibyte)
	memory, cpu, own := m.server.Resident(), m.server.Spent(), fleet.Spent(os.Getpid())
	all, err := m.fleet.Connect(m.server.Address)
	if err != nil {
		return err
	}
	m.add("storm: first proxy configured, ms", float64(all.First())/milliseconds)
	m.add("storm: half of them, ms", float64(all.Median())/milliseconds)
	m.add("storm: all, ms", float64(all.Last())/milliseconds)
	m.add("storm: CPU of outriderd per proxy, ms", float64(m.server.Spent()-cpu)/milliseconds/n)
	m.add("storm: CPU of the simulated proxies, per proxy, ms", float64(fleet.Spent(os.Getpid())-own)/milliseconds/n)
	time.Sleep(settle)
	m.add("storm: memory per proxy, KiB", (m.server.Resident()-memory)/kibibyte/n)
	return nil
}

// rest measures idle proxies.
func (m *measurement) rest() {
	n := float64(m.setting.proxies)
	before := m.server.Spent()
	began := time.Now()
	time.Sleep(m.idle)
	m.add("idle: CPU per proxy, µs each second", float64(m.server.Spent()-before)/float64(time.Microsecond)/n/time.Since(began).Seconds())
	m.add("idle: memory, MiB", m.server.Resident()/mebibyte)
}

// change moves one endpoint several times, by replacing its file. Times begin before the file is
// written, so they include the 20 ms for which the control plane waits for further changes.
func (m *measurement) change(service, users int) error {
	title := fmt.Sprintf("change for %d: ", users)
	for range m.changes {
		cpu := m.server.Spent()
		a := m.fleet.Expect(service, users)
		if err := m.folder.Move(service); err != nil {
			return err
		}
		if err := m.fleet.Await(a); err != nil {
			return fmt.Errorf("%s%w", title, err)
		}
		m.add(title+"first, ms", float64(a.First())/milliseconds)
		m.add(title+"half of them, ms", float64(a.Median())/milliseconds)
		m.add(title+"last, ms", float64(a.Last())/milliseconds)
		time.Sleep(settle)
		m.add(title+"CPU of outriderd, ms", float64(m.server.Spent()-cpu)/milliseconds)
		m.add(title+"CPU per connected proxy, µs", float64(m.server.Spent()-cpu)/float64(time.Microsecond)/float64(m.setting.proxies))
	}
	m.add(title+"memory after all, MiB", m.server.Resident()/mebibyte)
	return nil
}
