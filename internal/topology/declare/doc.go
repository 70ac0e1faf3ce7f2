// Package declare makes and watches the objects of a topology.Plan in the broker: what is there and fits (Ensure), what
// the user may do (Preflight), how many messages wait (Depths, Watcher). It never changes or deletes an object that
// exists, and knows nothing of messages.
package declare
