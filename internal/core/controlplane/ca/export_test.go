package ca

// NewMemoryStore returns the in-memory store of these tests.
func NewMemoryStore() Store { return newMemoryStore() }
