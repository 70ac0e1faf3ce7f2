// Package sim runs the sidecar against a model of the broker under virtual time, thousands of times with another seed
// each: real sessions, intake, publisher, consumer, settlements, retry policy and gate; only the network, the broker
// and the app are models. Every run is judged by the ledgers of publisher, app and dead-letter queue. The model is
// compared with real brokers by a script of which every version has its golden answer.
//
// It holds tests only, and proves nothing about disks, clusters or the real network: package test does.
package sim
