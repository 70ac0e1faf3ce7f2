package dispatch

import (
	"strings"
	"testing"
)

func TestPlaceOfALocation(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("p", 3000)
	for location, want := range map[string]string{
		"":                            "",
		"/":                           "/",
		"https://app.example/events/": "https://app.example/events/",
		"https://user:secret@login.example:8443/sign-in?next=/msg/1&token=t#top": "https://login.example:8443/sign-in",
		"/login?next=/msg/1":                   "/login",
		"?next=/msg/1":                         "",
		"login;jsessionid=0123?x":              "login",
		"//other.example/a%20b":                "//other.example/a%20b",
		"https://u:p?a@login.example/":         "", // the password is not cut in two
		"https://user:12;secret@login.example": "https://login.example",
		"mailto:a@example.com":                 "",
		"https://login.example/\x1b[2J":        "",
		"https://login.example/\u202eevil/ü":   "https://login.example/%E2%80%AEevil/%C3%BC",
		"https://login.example/a%2":            "https://login.example/a",
		"https://login.example/a%zz/b":         "",
		"https://login.example/" + long:        "https://login.example/" + long[:maxShown-len("https://login.example/")],
		"https://login.example/" + long + "%2": "https://login.example/" + long[:maxShown-len("https://login.example/")],
	} {
		if got := shownLocation([]byte(location[:min(len(location), maxLocation)])); got != want {
			t.Errorf("%.80q: %q, want %q", location, got, want)
		}
	}
}
