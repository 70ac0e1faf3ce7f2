package topologytest

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// replica is one consumer of a queue with a single active consumer, on a connection of its own.
type replica struct {
	ch         *amqp.Channel
	socket     net.Conn
	deliveries <-chan amqp.Delivery
	last       map[int]uint64 // the tag of each number that it got
}

func newReplica(t *testing.T, url, queue string, prefetch int) *replica {
	t.Helper()
	r := &replica{last: map[int]uint64{}}
	conn := must.Get(amqp.DialConfig(url, amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		var err error
		r.socket, err = net.Dial(network, addr)
		return r.socket, err
	}}))(t)
	t.Cleanup(func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) })
	r.ch = must.Get(conn.Channel())(t)
	must.Do(t, r.ch.Qos(prefetch, 0, false))
	r.deliveries = must.Get(r.ch.Consume(queue, "c", false, false, false, false, nil))(t)
	return r
}

// takes returns the numbers of the next n deliveries.
func (r *replica) takes(t *testing.T, n int) (got []int) {
	t.Helper()
	for len(got) < n {
		select {
		case d, ok := <-r.deliveries:
			if !ok {
				t.Fatalf("the deliveries ended after %v", got)
			}
			number := must.Get(strconv.Atoi(string(d.Body)))(t)
			r.last[number] = d.DeliveryTag
			got = append(got, number)
		case <-time.After(time.Minute):
			t.Fatalf("no delivery after %v", got)
		}
	}
	return got
}

// acks returns when the broker has read the acks.
func (r *replica) acks(t *testing.T, numbers ...int) {
	t.Helper()
	for _, n := range numbers {
		must.Do(t, r.ch.Ack(r.last[n], false))
	}
	must.Do(t, r.ch.Qos(10, 0, false))
}

func numbers(from, to int) (all []int) {
	for n := from; n <= to; n++ {
		all = append(all, n)
	}
	return all
}

// fortyIn makes a queue of that type with 40 messages.
func fortyIn(t *testing.T, queueType string) (url, queue string) {
	t.Helper()
	url = brokertest.URL(t)
	queue = brokertest.Queue(t, url, "q", amqp.Table{topology.ArgType: queueType, topology.ArgSingleConsumer: true})
	var bodies []string
	for _, n := range numbers(1, 40) {
		bodies = append(bodies, strconv.Itoa(n))
	}
	brokertest.Send(t, url, queue, bodies...)
	return url, queue
}

// handOver lets a replica take 13 messages and ack 1, 2 and 5 of them, while another one waits.
func handOver(t *testing.T, queueType string) (queue string, first, second *replica) {
	t.Helper()
	url, queue := fortyIn(t, queueType)
	first, second = newReplica(t, url, queue, 10), newReplica(t, url, queue, 20)
	first.takes(t, 10)
	first.acks(t, 1, 2, 5)
	first.takes(t, 3)
	return queue, first, second
}

// TestHandOverIsInOrder: when the channel or the connection of the active consumer ends, everything that it has not
// settled comes to the next consumer first, and all of it in the queue's order. Order by key depends on this.
func TestHandOverIsInOrder(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{topology.TypeClassic, topology.TypeQuorum} {
		for name, end := range map[string]func(*replica) error{
			"channel closed":    func(r *replica) error { return r.ch.Close() },
			"connection killed": func(r *replica) error { return r.socket.Close() },
		} {
			t.Run(queueType+" "+name, func(t *testing.T) {
				t.Parallel()
				queue, first, second := handOver(t, queueType)
				must.Do(t, end(first))
				if got, want := second.takes(t, 20), append([]int{3, 4}, numbers(6, 23)...); !slices.Equal(got, want) {
					t.Errorf("the second consumer got %v, want %v", got, want)
				}
				// Again, with messages that are delivered for the third time beside some that are new to it.
				third := newReplica(t, brokertest.URL(t), queue, 100)
				second.acks(t, 3, 7, 23)
				second.takes(t, 3)
				must.Do(t, end(second))
				want := append([]int{4, 6}, append(numbers(8, 22), numbers(24, 40)...)...)
				if got := third.takes(t, len(want)); !slices.Equal(got, want) {
					t.Errorf("the third consumer got %v, want %v", got, want)
				}
			})
		}
	}
}

// TestCancelHandsOverTooEarly: after a cancel the next consumer gets what lies behind the unsettled messages of the
// first one. So a consumer that keeps order must not be cancelled. Only classic queues of RabbitMQ 3 wait for the
// channel to close.
func TestCancelHandsOverTooEarly(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{topology.TypeClassic, topology.TypeQuorum} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			_, first, second := handOver(t, queueType)
			must.Do(t, first.ch.Cancel("c", false))
			want := 14
			if queueType == topology.TypeClassic && strings.HasPrefix(brokertest.Version(t), "3.") {
				must.Do(t, first.ch.Close())
				want = 3
			}
			if got := second.takes(t, 1); got[0] != want {
				t.Errorf("the next consumer got %v first, want %d", got, want)
			}
		})
	}
}
