package supervise

// A State is a stage in the life of the supervised child.
type State string

// The states of a supervisor.
const (
	Idle       State = "idle"       // nothing was started
	Starting   State = "starting"   // the first child runs, and is not ready yet
	Serving    State = "serving"    // the child is ready
	Restarting State = "restarting" // the child has ended, and the back-off runs
	Reviving   State = "reviving"   // a later child runs, and is not ready yet
	Draining   State = "draining"   // stopping; the child runs until it is no longer needed
	DrainDown  State = "drain-down" // stopping; the child ended, but is still needed
	Stopping   State = "stopping"   // the child is being killed
	Stopped    State = "stopped"    // the end
)

// An Event leads from one state to the next.
type Event string

// The events that a supervisor handles.
const (
	Begin          Event = "begin"
	ChildReady     Event = "child ready"
	ChildEnded     Event = "child ended" // it ended or could not be started; another try is due
	ChildLost      Event = "child lost"  // it ended or could not be started; no other try is made
	BackoffElapsed Event = "back-off elapsed"
	Terminate      Event = "terminate" // SIGTERM: drain, then stop
	Quit           Event = "quit"      // stop now
	Drained        Event = "drained"   // the child is no longer needed
	GraceOver      Event = "grace over"
)

// An Action is an effect that the supervisor carries out.
type Action string

// The actions of a supervisor.
const (
	OpenStandby  Action = "open standby"  // accept connections in the child's place
	CloseStandby Action = "close standby" // hand over to the child
	StartChild   Action = "start child"
	KillChild    Action = "kill child"
	WaitBackoff  Action = "wait back-off"
	ArmGrace     Action = "arm grace"
	DrainChild   Action = "drain child"
	AwaitDrained Action = "await drained" // find out when no child is needed any longer
	ExitOK       Action = "exit ok"       // as requested
	ExitFailed   Action = "exit failed"   // with Exit.Code of the child, which is never 0
)

// A Step is an entry of the table.
type Step struct {
	To State
	Do []Action
}

// table is the whole policy. An event that is absent in a state is ignored there: a second
// SIGTERM while draining changes nothing. The test lists each absent pair with its reason.
//
// The standby is open whenever no child is ready: from before the first start until a child is ready or
// supervision ends. A child that ends while draining is replaced, because the application's last requests need
// a proxy; the new child drains too. This also holds for a child that was never ready: AwaitDrained finds out
// whether a client waits for it.
var table = map[State]map[Event]Step{
	Idle: {
		Begin:     {Starting, []Action{OpenStandby, StartChild}},
		Terminate: {Stopped, []Action{ExitOK}},
		Quit:      {Stopped, []Action{ExitOK}},
	},
	Starting: {
		ChildReady: {Serving, []Action{CloseStandby}},
		ChildEnded: {Restarting, []Action{WaitBackoff}},
		ChildLost:  {Stopped, []Action{CloseStandby, ExitFailed}},
		// The application may run already, and its connections wait in the standby.
		Terminate: {Draining, []Action{ArmGrace, AwaitDrained}},
		Quit:      {Stopping, []Action{KillChild}},
	},
	Serving: {
		ChildEnded: {Restarting, []Action{OpenStandby, WaitBackoff}},
		ChildLost:  {Stopped, []Action{ExitFailed}},
		Terminate:  {Draining, []Action{ArmGrace, DrainChild, AwaitDrained}},
		Quit:       {Stopping, []Action{KillChild}},
	},
	Restarting: {
		BackoffElapsed: {Reviving, []Action{StartChild}},
		Terminate:      {DrainDown, []Action{ArmGrace, AwaitDrained}},
		Quit:           {Stopped, []Action{CloseStandby, ExitOK}},
	},
	Reviving: {
		ChildReady: {Serving, []Action{CloseStandby}},
		ChildEnded: {Restarting, []Action{WaitBackoff}},
		ChildLost:  {Stopped, []Action{CloseStandby, ExitFailed}},
		Terminate:  {Draining, []Action{ArmGrace, AwaitDrained}},
		Quit:       {Stopping, []Action{KillChild}},
	},
	Draining: {
		ChildReady: {Draining, []Action{CloseStandby, DrainChild}}, // it was started while draining
		ChildEnded: {DrainDown, []Action{OpenStandby, WaitBackoff}},
		ChildLost:  {Stopped, []Action{CloseStandby, ExitFailed}},
		Drained:    {Stopping, []Action{KillChild}},
		GraceOver:  {Stopping, []Action{KillChild}},
		Quit:       {Stopping, []Action{KillChild}},
	},
	DrainDown: {
		BackoffElapsed: {Draining, []Action{StartChild}},
		Drained:        {Stopped, []Action{CloseStandby, ExitOK}},
		GraceOver:      {Stopped, []Action{CloseStandby, ExitOK}},
		Quit:           {Stopped, []Action{CloseStandby, ExitOK}},
	},
	Stopping: {
		// The child's status does not matter: it was killed.
		ChildEnded: {Stopped, []Action{CloseStandby, ExitOK}},
		ChildLost:  {Stopped, []Action{CloseStandby, ExitOK}},
	},
	Stopped: {},
}

// Next returns the step that event causes in state: the next state and the actions. ok is
// false for an event that changes nothing.
//
// OpenStandby may come while the standby is open already, and CloseStandby while it is
// closed; they have no effect then.
func Next(state State, event Event) (step Step, ok bool) {
	step, ok = table[state][event]
	return step, ok
}
