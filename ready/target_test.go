package ready

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"unicode"
)

func TestAnswersOfTheHealthService(t *testing.T) {
	ok := http.Header{"Grpc-Status": {"0"}}
	frame := func(message string) string { return "\x00\x00\x00\x00" + string(rune(len(message))) + message }
	for name, tt := range map[string]struct {
		header, trailer http.Header
		body            string
		want            string
	}{
		"it serves":                        {nil, ok, frame("\x08\x01"), ""},
		"it serves, and a later field":     {nil, ok, frame("\x12\x01x\x08\x01"), ""},
		"it does not serve":                {nil, ok, frame("\x08\x02"), "the service is NOT_SERVING (2)"},
		"an empty message":                 {nil, ok, frame(""), "the service is UNKNOWN (0)"},
		"no such service":                  {http.Header{"Grpc-Status": {"5"}}, nil, "", "does not know this service"},
		"no health service":                {http.Header{"Grpc-Status": {"12"}}, nil, "", "has no health service"},
		"an error":                         {nil, http.Header{"Grpc-Status": {"14"}, "Grpc-Message": {"a\x1b[31m\nb"}}, "", "gRPC status 14 a?[31m b"},
		"no status":                        {nil, nil, frame("\x08\x01"), "the answer is none"},
		"a status that is no number":       {nil, http.Header{"Grpc-Status": {"-1"}}, "", "the answer is none"},
		"a body of another length":         {nil, ok, frame("\x08\x01") + "x", "the answer is none"},
		"a compressed body":                {nil, ok, "\x01" + frame("\x08\x01")[1:], "the answer is none"},
		"a message that ends too early":    {nil, ok, frame("\x12\x09x"), "the answer is none"},
		"a number that does not end":       {nil, ok, frame("\x08\xff"), "the answer is none"},
		"a kind of field that is not used": {nil, ok, frame("\x0b"), "the answer is none"},
	} {
		err := healthAnswer(tt.header, tt.trailer, []byte(tt.body))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
	}
}

func TestSocketsThatListen(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue
   0: 00000000:3AA0 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1337        0 1 1
   1: 0100007F:C350 0100007F:3A99 01 00000000:00000000 00:00000000 00000000  1337        0 2 1
`
	for port, want := range map[uint16]bool{15008: true, 15001: false, 50000: false} {
		if got := listensIn(table, port); got != want {
			t.Errorf("%d listens: %t", port, got)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !listens(uint16(l.Addr().(*net.TCPAddr).Port)) {
		t.Error("a socket that listens is not found")
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if listens(uint16(c.LocalAddr().(*net.TCPAddr).Port)) {
		t.Error("a socket that does not listen is found")
	}
}

func FuzzTarget(f *testing.F) {
	for _, s := range []string{"tcp://a:1", "http://a/b?c=d", "grpc://[::1]:1/x", "unix:///a", "file:///a/b", "cache is healthy", "http://u:p@a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string) (string, error){
			func(s string) (string, error) {
				c, err := parseTarget(s)
				if err != nil {
					return "", err
				}
				return c.name, nil
			},
			func(s string) (string, error) {
				e, err := parseEndpoint(s)
				if err != nil {
					return "", err
				}
				return e[0].shown, nil
			},
		} {
			shown, err := parse(text)
			if err != nil {
				shown = err.Error()
			}
			if shown == "" || strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q is shown as %q", text, shown)
			}
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(503, []byte(`{"ready":false,"reasons":[{"code":"a","message":"b\n","hint":"c"}]}`), "0")
	f.Add(200, []byte("\xff\n\x1b"), "")
	f.Add(200, []byte("\x00\x00\x00\x00\x02\x08\x01"), "0")
	f.Fuzz(func(t *testing.T, code int, body []byte, status string) {
		if err := reasons(code, body); err.Error() == "" || strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("the reasons are %q", err)
		}
		if err := healthAnswer(nil, http.Header{"Grpc-Status": {status}, "Grpc-Message": {string(body)}}, body); err == nil && len(body) < 7 {
			t.Errorf("%q serves", body)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"container":"a","sandbox":"b","phase":"running","healthy":true}`), true)
	f.Add([]byte(`{"version":2}`), false)
	f.Fuzz(func(t *testing.T, raw []byte, alive bool) {
		r, err := parseRecord(raw)
		if err != nil {
			return
		}
		if !alive && r.reached("healthy", alive) == nil {
			t.Errorf("%q is healthy, and its writer has died", raw)
		}
	})
}

func FuzzListens(f *testing.F) {
	f.Add("0: 00000000:3AA0 00000000:0000 0A", uint16(15008))
	f.Fuzz(func(_ *testing.T, table string, port uint16) { listensIn(table, port) })
}
