use strict; use warnings; use POSIX 'strftime'; use IO::Socket::INET;
$| = 1;
my ($url, $mode) = @ENV{qw(CONFIG_URL MODE)};
my ($host, $port, $path) = $url =~ m{^http://([^:/]+):(\d+)(/.*)$} or die "not a URL: $url";
sub say_ { print strftime('%Y/%m/%d %H:%M:%S', gmtime), " [$$] @_\n" }
sub get {
    my $s = IO::Socket::INET->new(PeerAddr => $host, PeerPort => $port, Timeout => 10) or die "cannot connect to $host:$port: $@\n";
    print $s "GET $path HTTP/1.0\r\nHost: $host\r\n\r\n";
    my $text = join '', <$s>;
    die "$host:$port closed the connection without an answer\n" if $text eq '';
    die "GET $url: $text\n" unless $text =~ m{^HTTP/1.\d 200};
}
say_("starting, configuration from $url");
until (eval { get(); 1 }) {
    my $why = $@; chomp $why;
    if ($mode eq 'swallow') { say_("warning: $why; using defaults"); last }
    if ($mode ne 'retry') { say_("fatal: $why"); exit 2 }
    say_("error: $why");
    sleep 1;
}
say_('running');
if ($mode eq 'crash') { my $pool; my %h = %$pool }
exit 0 if $mode eq 'job';
$SIG{TERM} = sub { exit 0 };
sleep 1 while 1;
