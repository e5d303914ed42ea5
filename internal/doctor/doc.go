// Package doctor explains pods: before they start, what will happen to them; afterwards, what did happen.
// It promises a cause, its evidence and a fix, or to say that the cause is not known. It changes nothing.
//
// Before:
//   - lint: mistakes in manifests, with fixes
//   - simulate: one start or stop on a virtual clock
//   - verify: all interleavings of a start or stop
//   - scenario: the behaviour of containers, the input of simulate and verify
//   - chart: pictures of these
//
// After:
//   - evidence: objects, logs and events of a pod that ran, each with source and time
//   - diagnose: the conclusions from that evidence alone
//   - diagnoser: diagnoses pods of a cluster as they fail, for the control plane
//
// It imports base and core, and uses the same models by which injection decides. The core does not
// import it: outriderd passes a diagnoser to the core.
package doctor
