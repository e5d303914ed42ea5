// Package nacos fetches documents from Nacos, for package bootconfig, with Nacos' own client.
//
// Set DisableUseSnapShot in the client's constant.ClientConfig. Otherwise, if the server is unreachable, the
// client answers from its own files, and this package cannot distinguish that from an answer of the server. The
// files are not needed, because bootconfig itself stores the last good document. Configure servers, user and
// namespace in the client. The module is versioned as package bootconfig describes.
package nacos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/clients/config_client"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"
	"outrider.dev/bootconfig"
)

// A Provider fetches one document from Nacos. Create it with [New].
type Provider struct {
	client    config_client.IConfigClient
	param     vo.ConfigParam
	changed   chan struct{} // buffers one signal that the document may have changed
	listening bool
	next      time.Time // time of the next query
}

// pause is the time between two queries. Nacos' client limits all providers of a process together to five
// queries a second for one document. It refuses more queries with an error that has no type of its own, and
// whose text contains the constant limited.
const (
	pause   = 250 * time.Millisecond
	limited = "ConfigQueryRequest is limited"
)

// New returns a provider for the document dataID of a group, such as "DEFAULT_GROUP", which need not
// exist yet. A client can have only one provider for a document.
func New(client config_client.IConfigClient, dataID, group string) (*Provider, error) {
	if client == nil {
		return nil, errors.New("the provider of Nacos has no client")
	}
	if dataID == "" || group == "" {
		return nil, fmt.Errorf("dataID %q and group %q of Nacos: none must be empty", dataID, group)
	}
	return &Provider{client: client, param: vo.ConfigParam{DataId: dataID, Group: group}, changed: make(chan struct{}, 1)}, nil
}

// String returns "nacos:GROUP/DATAID".
func (p *Provider) String() string { return "nacos:" + p.param.Group + "/" + p.param.DataId }

// Close ends the subscription that the first long poll started. Call it after Config.Close.
func (p *Provider) Close() error {
	if !p.listening {
		return nil
	}
	return p.client.CancelListenConfig(p.param)
}

// Fetch implements [bootconfig.Provider]. The version is a hash of the document. The client accepts no
// context, so a call that hangs continues in the background until the client's own TimeoutMs.
func (p *Provider) Fetch(ctx context.Context, r bootconfig.Request) (bootconfig.Document, error) {
	if r.Wait > 0 && !p.listening {
		param := p.param
		param.OnChange = func(string, string, string, string) { p.notify() }
		if err := p.client.ListenConfig(param); err != nil {
			return bootconfig.Document{}, fmt.Errorf("subscribing: %w", err)
		}
		p.listening = true
	}
	var over <-chan time.Time
	if r.Wait > 0 {
		timer := time.NewTimer(r.Wait)
		defer timer.Stop()
		over = timer.C
	}
	for last := r.Wait <= 0; ; {
		d, err := p.get(ctx)
		if err != nil || d.Version != r.Version {
			return d, err
		}
		if last {
			return bootconfig.Document{}, bootconfig.ErrUnchanged
		}
		select {
		case <-p.changed: // fetch again and compare: a notification may come late, or twice
		case <-over: // fetch again: an unreachable server sends no notification
			last = true
		case <-ctx.Done():
			return bootconfig.Document{}, ctx.Err()
		}
	}
}

func (p *Provider) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// get returns the document as soon as the client's rate limit allows it.
func (p *Provider) get(ctx context.Context) (bootconfig.Document, error) {
	for {
		early := time.NewTimer(time.Until(p.next))
		select {
		case <-early.C:
		case <-ctx.Done():
			early.Stop()
			return bootconfig.Document{}, ctx.Err()
		}
		p.next = time.Now().Add(pause)
		content, err := p.content(ctx)
		switch {
		case err != nil && strings.Contains(err.Error(), limited): // another provider has used up the limit: try again
		case err != nil:
			return bootconfig.Document{}, err
		case content == "": // the client returns "" for a missing and for an empty document, but Nacos stores no empty one
			return bootconfig.Document{}, errors.New("the document does not exist")
		default:
			sum := sha256.Sum256([]byte(content))
			return bootconfig.Document{Version: "sha256:" + hex.EncodeToString(sum[:]), Data: []byte(content)}, nil
		}
	}
}

func (p *Provider) content(ctx context.Context) (string, error) {
	type answer struct {
		content string
		err     error
	}
	result := make(chan answer, 1)
	go func() {
		content, err := p.client.GetConfig(p.param)
		result <- answer{content, err}
	}()
	select {
	case a := <-result:
		return a.content, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
