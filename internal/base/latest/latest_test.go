package latest

import (
	"context"
	"testing"
)

func TestValue(t *testing.T) {
	var v Value[int]
	first, replaced := v.Get()
	_, too := v.Get()
	select {
	case <-replaced:
		t.Fatal("it is replaced before it was set")
	default:
	}
	v.Set(1)
	<-replaced
	<-too
	v.Set(2) // Set without a waiting goroutine must not panic
	second, next := v.Get()
	if first != 0 || second != 2 {
		t.Errorf("%d, %d; want 0, 2", first, second)
	}
	v.Set(2)
	<-next
}

func TestWait(t *testing.T) {
	c := make(chan int)
	ended, end := context.WithCancel(t.Context())
	if end(); Wait(ended, c) {
		t.Error("c is said to be closed")
	}
	if close(c); !Wait(t.Context(), c) {
		t.Error("c is said to be open")
	}
}
