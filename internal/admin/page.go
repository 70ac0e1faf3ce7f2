package admin

import (
	"embed"
	"path"
	"strings"
)

//go:embed console
var embedded embed.FS

// contentTypes are those of the console's files, by the ends of their names.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// ConsoleFiles are the files of the console by their paths: the page at /, what it begins with at /console.css and
// /console.js, the rest below /console/.
func ConsoleFiles() map[string]Static {
	files := map[string]Static{}
	entries, _ := embedded.ReadDir("console") // what is embedded is there
	for _, e := range entries {
		at := "/console/" + e.Name()
		switch {
		case e.Name() == "index.html":
			at = "/"
		case strings.HasPrefix(e.Name(), "console."):
			at = "/" + e.Name()
		}
		files[at] = Static{ContentType: contentTypes[path.Ext(e.Name())], Read: func() []byte {
			body, _ := embedded.ReadFile("console/" + e.Name())
			return body
		}}
	}
	return files
}
