package evidence

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// An Access is a line of Envoy's access log, in its own format, in Istio's, or in JSON.
type Access struct {
	Request  string   // "GET /orders HTTP/1.1"; "- - -" of a TCP connection
	Code     int      // 0: there was no response
	Flags    []string // why, as UF (upstream connection failure), UH (no healthy upstream), NR (no route)
	Upstream string   // its address; empty: none was reached
}

// ReadAccess reads such a line; false if it is none.
func ReadAccess(text []byte) (a Access, ok bool) {
	line := string(bytes.TrimSpace(text))
	flags := ""
	if strings.HasPrefix(line, "{") {
		var j struct {
			Method, Path, Protocol string
			Code                   *int   `json:"response_code"`
			Flags                  string `json:"response_flags"`
			Upstream               string `json:"upstream_host"`
		}
		if json.Unmarshal([]byte(line), &j) != nil || j.Code == nil {
			return a, false
		}
		a.Request, a.Code, a.Upstream, flags = strings.TrimSpace(j.Method+" "+j.Path+" "+j.Protocol), *j.Code, j.Upstream, j.Flags
	} else {
		parts := strings.Split(line, `"`)
		if !strings.HasPrefix(line, "[") || len(parts) < 5 || !strings.HasSuffix(parts[0], "] ") {
			return a, false
		}
		fields := strings.Fields(parts[2])
		if len(fields) < 2 || strings.Count(parts[1], " ") < 2 {
			return a, false
		}
		code, err := strconv.Atoi(fields[0])
		if err != nil {
			return a, false
		}
		a.Request, a.Code, flags = parts[1], code, fields[1]
		a.Upstream = parts[len(parts)-2] // the last one in quotes
	}
	if a.Upstream == "-" {
		a.Upstream = ""
	}
	if flags != "-" && flags != "" {
		a.Flags = strings.Split(flags, ",")
	}
	return a, true
}
