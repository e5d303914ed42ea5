// Package doctor explains: what will happen to a pod, before, and what did happen to it, after. It
// promises a cause, its evidence and a fix, or the word that it does not know; it changes nothing.
//
// Before:
//   - lint: mistakes in manifests, with fixes
//   - simulate: one start or stop on a virtual clock
//   - verify: all interleavings of one
//   - scenario: the behaviour of containers, as simulate and verify are given it
//   - chart: pictures of these
//
// After:
//   - evidence: objects, logs and events of a pod that ran, each with source and time
//   - diagnose: the conclusions from that evidence alone
//   - diagnoser: diagnoses pods of a cluster as they fail, for the control plane
//
// It imports base and core, of which it uses the same models that injection decides by. The core does
// not import it: outriderd is handed a diagnoser.
package doctor
