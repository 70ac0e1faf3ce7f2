package judge

// alone is I18, for one message: each request is a batch, behind a batch that failed as a whole it has a request of its
// own, and unless it fails by itself no attempt of it is ever counted. An attempt that a fault of the app may have
// failed is another matter.
func (j *judge) alone(m *message) {
	for i := range m.Receipts {
		r := &m.Receipts[i]
		if j.run.Gather > 1 && r.Of == 0 {
			j.violated("I18", "%s came in a request that is no batch", m.Name)
		}
		if i > 0 && whole(&m.Receipts[i-1]) && r.Of > 1 {
			j.violated("I18", "%s was one of %d in its request after a batch that failed", m.Name, r.Of)
		}
		if j.run.Gather > 1 && r.Count > 0 && !m.Fails && m.plan.Failures() == 0 && j.attempts(m.pub.Sent, r.At) == 0 {
			j.violated("I18", "%s never failed by itself, and receipt %d said retry count %d", m.Name, i+1, r.Count)
		}
	}
}

// gathered is how many messages a request may have.
func (b *books) gathered() int { return max(1, b.run.Gather) }

// underWay is how many messages may be under way.
func (b *books) underWay() int { return b.run.Concurrency * b.gathered() }
