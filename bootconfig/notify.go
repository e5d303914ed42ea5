package bootconfig

// A listener is a function that was passed to OnChange.
type listener[T any] struct {
	f    func(Snapshot[T])
	seen uint64 // the generation that it received last
	wake chan struct{}
	end  chan struct{}
}

// OnChange calls f with the value in use before it returns, and from then on with each new value in order, from
// one goroutine at a time. If f is slower than the changes, it gets the last value and misses those in between. f
// may block. It may also panic, which is reported; f is still called with the next value. After stop or Close, f
// is not called again, but a call in progress continues.
func (c *Config[T]) OnChange(f func(Snapshot[T])) (stop func()) {
	l := &listener[T]{f: f, wake: make(chan struct{}, 1), end: make(chan struct{})}
	c.mu.Lock()
	c.listeners[l] = struct{}{} // before deliver reads the value, so that a later change wakes the listener
	c.mu.Unlock()
	c.deliver(l)
	go c.listen(l)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, ok := c.listeners[l]; ok {
			delete(c.listeners, l)
			close(l.end)
		}
	}
}

func (c *Config[T]) listen(l *listener[T]) {
	for {
		select {
		case <-l.end:
			return
		case <-c.ctx.Done():
			return
		case <-l.wake:
		}
		select {
		case <-l.end: // the first select picks at random if both are ready
			return
		case <-c.ctx.Done():
			return
		default:
			c.deliver(l)
		}
	}
}

// deliver calls the function of l with the current value, unless it has received it already.
func (c *Config[T]) deliver(l *listener[T]) {
	s := c.current.Load()
	if s.Generation == l.seen {
		return
	}
	l.seen = s.Generation
	if err := callListener(l.f, *s); err != nil {
		c.report(err)
	}
}

func callListener[T any](f func(Snapshot[T]), s Snapshot[T]) (err error) {
	defer caught("a function of OnChange", &err)
	f(s)
	return nil
}

// notify wakes the listeners.
func (c *Config[T]) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.listeners { // any order: each has a goroutine of its own
		signal(l.wake)
	}
}

// signal wakes the goroutine that receives from wake. It does not block, and several signals may become one.
func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default: // a signal is pending already
	}
}

// report passes an error to OnError, without waiting for it.
func (c *Config[T]) report(err error) {
	if c.o.OnError == nil {
		return
	}
	select {
	case c.errors <- err:
	default: // the queue is full: drop it; Snapshot.Err contains it
	}
}

func (c *Config[T]) reportErrors() {
	for {
		select {
		case err := <-c.errors:
			callOnError(c.o.OnError, err)
		case <-c.ctx.Done():
			return
		}
	}
}

func callOnError(f func(error), err error) {
	defer func() { _ = recover() }() // the panic cannot be reported any more
	f(err)
}
