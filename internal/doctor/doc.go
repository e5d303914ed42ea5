// Package doctor has the packages that explain pods: what will happen when a pod starts, and what happened
// to a pod that ran. They report a cause with its evidence and a remedy, or that the cause is not known.
// They change no object.
//
// Before:
//   - lint: mistakes in manifests, with fixes
//   - simulate: one start or stop on a virtual clock
//   - verify: all interleavings of a start or stop
//   - scenario: the behaviour of containers, the input of simulate and verify
//   - chart: pictures of a timeline
//
// After:
//   - evidence: objects, logs and events of a pod that ran, each with source and time
//   - diagnose: the conclusions from that evidence
//   - diagnoser: diagnoses pods of a cluster as they fail, for the control plane
//
// The packages import base and core, and use the same models as injection. The core does not import them:
// outriderd passes a diagnoser to the core.
package doctor
