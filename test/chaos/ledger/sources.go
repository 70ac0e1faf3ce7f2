package ledger

// The files of the sources beside the publisher at the broker.
const (
	RequestFile = "http.log"
	RowFile     = "outbox.log"
	TableFile   = "table.log" // the outbox as it was in the end
)

// Requested is one message that was POSTed to the sidecar.
type Requested struct {
	Published
	Batch  bool   `json:"batch,omitempty"`
	Status int    `json:"status,omitempty"` // 0: no answer
	Code   string `json:"code,omitempty"`   // of the problem
	Want   int    `json:"want,omitempty"`   // the status with which it is to be refused; 0: it is to be taken
	// how often it was sent: again only after 503, which says that it was not published
	Tries int `json:"tries,omitempty"`
}

// Written is one row of the outbox. Its result is that of its transaction.
type Written struct {
	Published
	Tx     int    `json:"tx"`
	Shape  string `json:"shape"` // of the transaction
	Row    int64  `json:"row"`   // its id in the table; 0: it is unknown
	Key    string `json:"key,omitempty"`
	Poison bool   `json:"poison,omitempty"` // it cannot be routed: to be quarantined
}

// Stored is one row of the outbox as it was in the end.
type Stored struct {
	Row         int64  `json:"row"`
	ID          string `json:"id"`
	SentAt      int64  `json:"sent_at,omitempty"` // 0: it was not marked as sent
	Attempts    int    `json:"attempts,omitempty"`
	Error       string `json:"error,omitempty"`
	Quarantined bool   `json:"quarantined,omitempty"`
}
