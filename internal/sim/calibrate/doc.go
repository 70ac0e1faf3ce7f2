// Package calibrate compares the model of package sim with real brokers: a script of rejects, expiries, requeues,
// cycles, returns and confirms is played to both, and what they say is compared line by line with what the real broker
// of the same version once said. It holds tests only.
package calibrate
