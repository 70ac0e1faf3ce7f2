package model

// Step is one thing that a client asks for: a method, or a message with all of its content.
type Step struct {
	Connection    string // its name
	Class, Method uint16
	After         bool // it has been carried out, and the answer is on its way
}

// Publish reports whether the step is a message.
func (s Step) Publish() bool { return s.Class == 60 && s.Method == 40 }

// Effect is what goes wrong at a step.
type Effect int

// The effects. Cut breaks the connection and loses what is on its way; Freeze makes it half open. Withhold and Nack are
// for messages, before: the broker takes it and never confirms, or does not take it and says so.
const (
	None Effect = iota
	Cut
	Freeze
	Withhold
	Nack
)
