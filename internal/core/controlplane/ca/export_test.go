package ca

// NewShelf is the store of these tests.
func NewShelf() Store { return newShelf() }
