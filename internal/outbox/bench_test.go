package outbox

import (
	"testing"
	"time"
)

// BenchmarkRelay publishes rows of 1 KB: the time of one is that of one row in a long line.
func BenchmarkRelay(b *testing.B) {
	r := newRig(b)
	r.options.Batch = 500
	r.db.Exec(`INSERT INTO outbox (routing_key, body) SELECT 'k', convert_to(repeat(md5(n::text), 32), 'UTF8') FROM generate_series(1, $1::int) n`, max(b.N, 1))
	b.ResetTimer()
	r.start()
	for r.db.Value(`SELECT count(*) FROM (SELECT FROM outbox WHERE sent_at IS NULL LIMIT 1) c`) != "0" {
		time.Sleep(10 * time.Millisecond)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
