"""Word lists behind the templates: which words carry meaning, which only dress a number. Lists are general, never of one data set."""

from __future__ import annotations

HTTP_VERBS = frozenset("GET POST PUT DELETE PATCH HEAD OPTIONS CONNECT TRACE".split())
KEPT_KEYS = frozenset("message msg type code reason detail details status error kind cause state".split())
BOOLEANS = frozenset("true false yes no null none nil".split())
STOP = frozenset(
    """a an the of to for from in into on onto at by with without and or nor but not no is are was were be been being has
    have had do does did can cannot could will would shall should may might must it its this that these those than then as
    if when while because before after over under out up down off all any each every some such only own same so too very
    via per there here what which who whom whose how why where again further once during about against between through
    above below until unless already still yet""".split()
)
MODALS = frozenset(
    "can cannot can't could couldn't will won't would shall should may might must not didn't doesn't unable".split()
)
MEANING = frozenset(
    """fail failed failure failing error errors invalid unknown missing expected unexpected exceeded timeout timed denied
    refused rejected unavailable unable found exists closed lost aborted cancelled canceled exhausted expired broken
    corrupt corrupted unsupported illegal forbidden unauthorized unreachable overflow deadlock conflict""".split()
)
STATES = frozenset(
    """active inactive up down on off open opened close closed start started starting stop stopped stopping running paused
    idle ready busy enabled disabled enable disable connected disconnected connect disconnect online offline success
    successful successfully succeeded failed failure fail error errors ok warning fatal critical info debug pending
    completed complete finished done aborted cancelled canceled killed dead alive healthy unhealthy degraded locked
    unlocked lock unlock acquired released acquire release begin began end ended accept accepted reject rejected allow
    allowed deny denied granted revoked valid invalid known unknown found lost added removed add remove created deleted
    create delete insert inserted update updated read write reading writing send sent receive received sending receiving
    load loaded unload unloaded mount mounted unmount unmounted attach attached detach detached register registered
    unregister unregistered subscribe unsubscribe join joined leave left login logout push pull get set put post
    increase decrease increased decreased enter entered entering exit exited exiting true false yes no null none
    first last min max high low full empty before after inbound outbound input output request response client server
    master slave primary secondary leader follower leading following looking source target src dst local remote
    shutdown startup restart restarted reboot resume suspend resumed suspended initialise initialize initialised
    initialized allocate free allocated freed hit miss commit rollback committed success""".split()
)
CUES = frozenset(
    """user users host hosts file files tool tools node nodes server device devices service services job task model
    module modules driver process program daemon command account group domain name named id key table database db index
    topic queue bucket container pod image volume session thread class function method plugin package library interface
    port url uri path directory folder dir address addr partition zone region cluster tenant app application activity
    component feature agent stage step worker""".split()
)
CLOCK_WORDS = frozenset(
    """am pm a.m p.m gmt utc cet cest est edt pst pdt cst cdt mst mdt bst ist jst msk uhr
    jan feb mar apr jun jul aug sep sept oct nov dec january february march april june july august september october
    november december mon tue wed thu fri sat sun monday tuesday wednesday thursday friday saturday sunday
    januar februar märz mai juni juli oktober dezember montag dienstag mittwoch donnerstag freitag samstag sonntag
    janvier février mars avril juin juillet août septembre octobre novembre décembre lundi mardi mercredi jeudi vendredi
    samedi dimanche enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre lunes martes
    miércoles jueves viernes sábado domingo gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre
    janeiro fevereiro março junho julho setembro outubro novembro dezembro
    上午 下午 午前 午後 오전 오후 ص م""".split()
)
UNITS = frozenset(
    """ns us µs ms s sec secs second seconds min mins minute minutes h hr hrs hour hours day days b kb mb gb tb kib mib gib
    tib byte bytes k m g bit bits kbps mbps gbps hz khz mhz ghz % percent px pages""".split()
)
TOP_LEVEL_DOMAINS = frozenset(
    """com net org edu gov mil int io ai dev app cloud info biz local internal lan localdomain cn hk tw jp kr in sg au nz
    de fr uk es nl ch se dk fi pl ru ua cz sk hu ro bg gr tr il sa ae ir pk bd lk th vn ph tw br mx ar cl co pe ve ec uy ca eu
    xyz online site top club arpa pt ie lt lv ee hr si rs by kz ge""".split()
)
FILE_ENDINGS = frozenset(
    """exe dll so jar war py pyc js ts java c h cc cpp go rs rb php sh bat ps1 txt log csv tsv json jsonl xml yaml yml toml
    ini conf cfg properties html htm css md pdf png jpg jpeg gif svg zip gz tar tgz bz2 xz zst 7z rpm deb msi cab sys tmp
    bak swp lock pid sock db sqlite parquet bin dat img iso pem crt key cer plist mum kext pt onnx safetensors gguf""".split()
)
JOINERS = frozenset([",", ";", ":", "|", "-", "/", "x", "*", "+", "_", ".", "..", "...", "->", "=>", "to"])
COMPARE = frozenset("< > <= >= ~ ≈ ≤ ≥ # @".split())
EXCEPTION_ENDINGS = ("Exception", "Error", "Failure", "Fault", "Warning", "Interrupt", "Timeout", "Exhausted")
