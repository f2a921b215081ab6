package notify

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestCheckNtfy(t *testing.T) {
	for _, tc := range []struct {
		name      string
		get, post int // statuses
		want      string
	}{
		{"takes it", 200, 0, ""},
		{"is no ntfy, but answers", 404, 0, ""},
		{"refuses the token", 401, 0, "refused: 401 Unauthorized"},
		{"a token for publishing only", 403, 400, ""},
		{"a token for another topic", 403, 403, "refused: 403 Forbidden"},
		{"fails", 503, 0, "503 Service Unavailable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			posts := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Authorization"); got != "Bearer tk_1" {
					t.Errorf("token %q", got)
				}
				if r.Method == http.MethodGet {
					if r.URL.Path != "/mi50/auth" {
						t.Errorf("asked %s", r.URL.Path)
					}
					w.WriteHeader(tc.get)
					return
				}
				posts++
				if r.Header.Get("Delay") == "" {
					t.Error("this would be published")
				}
				w.WriteHeader(tc.post)
			}))
			defer server.Close()
			err := CheckNtfy(context.Background(), server.URL+"/mi50", "tk_1")
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if (posts > 0) != (tc.post != 0) {
				t.Errorf("%d posts", posts)
			}
		})
	}
	server := httptest.NewServer(nil)
	server.Close()
	var retry Retry
	if err := CheckNtfy(context.Background(), server.URL, ""); !errors.As(err, &retry) {
		t.Errorf("nobody there: %v", err)
	}
}
