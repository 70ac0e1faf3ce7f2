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

// export answers with the messages as `sidecar dlq export` writes them. An error in the middle ends the connection: the
// client has a broken transfer, and no file that looks complete. HTTP/1.0 cannot show the difference.
func (a *API) export(ctx context.Context, l readParams) (any, error) {
	if !l.r.ProtoAtLeast(1, 1) {
		return nil, fmt.Errorf("%w: an export needs HTTP/1.1: in HTTP/1.0 a part of it looks complete", deadletter.ErrInvalid)
	}
	q, err := l.queues.Only()
	if err != nil {
		return nil, err
	}
	h, name := l.w.Header(), q.Name()+".jsonl"
	h.Set("Content-Type", "application/jsonl")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	answerBy(l.w, time.Now().Add(readTime)) // also when the client reads nothing
	p, err := q.Export(ctx, l.w, deadletter.Selection{Filter: l.filter, Limit: l.scan.Limit}, nil)
	if err != nil && p.Done > 0 {
		err = cmp.Or(context.Cause(ctx), err)
		a.audit(l.r, "show bodies", http.StatusOK, "message", "export", "error", httpguard.Sentence(err))
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		h.Del("Content-Disposition")
	}
	return nil, err
}
