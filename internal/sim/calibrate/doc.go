// Package calibrate compares the model of package sim with real brokers: a script of rejects, expiries, requeues,
// cycles, returns and confirms is played to both, and their answers are compared line by line with the recorded ones of
// the real broker of the same version. It holds tests only.
package calibrate
