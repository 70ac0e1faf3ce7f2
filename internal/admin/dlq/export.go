package dlq

import (
	"cmp"
	"context"
	"fmt"
	"mime"
	"net/http"
	"time"

	"sidecar/internal/deadletter"
	"sidecar/internal/httpguard"
)

// attachment is an answer that clients keep as a file.
type attachment struct {
	http.ResponseWriter
	begun bool
}

// Write waits at most answerTime for a client that reads nothing.
func (a *attachment) Write(b []byte) (int, error) {
	a.begun = true
	answerBy(a.ResponseWriter, time.Now().Add(answerTime))
	return a.ResponseWriter.Write(b)
}

// export answers with the messages as `sidecar dlq export` writes them. An error in the middle ends the connection: the
// client has a broken transfer, and no file that looks complete. HTTP/1.0 cannot show the difference.
func (a *API) export(ctx context.Context, w http.ResponseWriter, r *http.Request, l readParams) (any, error) {
	if !r.ProtoAtLeast(1, 1) {
		return nil, fmt.Errorf("%w: an export needs HTTP/1.1: in HTTP/1.0 a part of it looks complete", deadletter.ErrInvalid)
	}
	h, name := w.Header(), a.o.Queue.Name()+".jsonl"
	h.Set("Content-Type", "application/jsonl")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	file := &attachment{ResponseWriter: w}
	_, err := a.o.Queue.Export(ctx, file, deadletter.Selection{Filter: l.filter, Limit: l.scan.Limit}, nil)
	if err != nil && file.begun {
		err = cmp.Or(context.Cause(ctx), err)
		a.audit(r, "show bodies", http.StatusOK, "message", "export", "error", httpguard.Sentence(err))
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		h.Del("Content-Disposition")
	}
	return nil, err
}
