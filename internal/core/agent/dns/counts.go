package dns

import "sync/atomic"

// Counts are a server's counts since its start.
type Counts struct {
	Questions  uint64 // all queries
	Mesh       uint64 // answered as names of the mesh
	Cached     uint64 // answered from the cache
	Stale      uint64 // answered with an expired answer, because the control plane did not answer
	Queries    uint64 // sent to the control plane
	Unanswered uint64 // queries to the control plane that it did not answer
	Forwarded  uint64 // forwarded to name servers
	Failed     uint64 // forwarded queries that no name server answered
	Refused    uint64 // answered with a failure: too many queries at a time
	Malformed  uint64 // messages that are not queries
	Looped     uint64 // the proxy's own queries that came back to it
	Names      uint64 // in the cache now
}

// counters are the atomic form of Counts.
type counters struct {
	questions, mesh, cached, stale, queries, unanswered, forwarded, failed, refused, malformed, looped atomic.Uint64
}

// Counts returns the current counts.
func (s *Server) Counts() Counts {
	c := &s.counts
	out := Counts{
		Questions: c.questions.Load(), Mesh: c.mesh.Load(), Cached: c.cached.Load(), Stale: c.stale.Load(),
		Queries: c.queries.Load(), Unanswered: c.unanswered.Load(), Forwarded: c.forwarded.Load(), Failed: c.failed.Load(),
		Refused: c.refused.Load(), Malformed: c.malformed.Load(), Looped: c.looped.Load(),
	}
	if s.cache != nil {
		out.Names = uint64(s.cache.len())
	}
	return out
}
