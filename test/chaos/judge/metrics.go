package judge

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"sidecar/test/chaos/ledger"
)

var (
	sample  = regexp.MustCompile(`(?m)^(sidecar_\w+)(\{[^}]*\})? ([0-9.e+]+)$`)
	outcome = regexp.MustCompile(`outcome="(\w+)"`)
)

// read returns metrics, summed over their labels, and once more by name and outcome. nil, and a violation, when nothing
// scraped them.
func (j *judge) read(file string) (map[string]float64, error) {
	text, err := os.ReadFile(filepath.Join(j.dir, file))
	if errors.Is(err, os.ErrNotExist) {
		j.violated("I11", "%s was not written", file)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	for _, s := range sample.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseFloat(s[3], 64)
		if err != nil {
			return nil, err
		}
		sums[s[1]] += n
		if o := outcome.FindStringSubmatch(s[2]); o != nil {
			sums[s[1]+" "+o[1]] += n
		}
	}
	return sums, nil
}

// metrics is I11, of the sidecar that was there in the end and had settled everything.
func (j *judge) metrics() error {
	sums, err := j.read(ledger.MetricsFile)
	if err != nil || sums == nil {
		return err
	}
	received := sums["sidecar_messages_received_total"]
	settled := sums["sidecar_messages_settled_total"] + sums["sidecar_stale_deliveries_total"]
	if received != settled || sums["sidecar_inflight_messages"] != 0 || sums["sidecar_delayed_messages"] != 0 {
		j.violated("I11", "received %v, settled %v, in flight %v, delayed %v", received, settled,
			sums["sidecar_inflight_messages"], sums["sidecar_delayed_messages"])
	}
	return j.counts()
}
