-- term.lua: write the metadata of a lease. Included by the scripts that grant a lock, which set `meta`,
-- the key, `meta_lease`, the lease id, `meta_ttl` in ms, `fields_at`, the number of the first argument
-- with metadata, the server's clock as `now` in us, and the `term`, which is the lease's fence.
--
-- The lease of a leader has the fields `tenure:since`, `tenure:term` and `tenure:value`, in this order. The
-- first two come without a value: only this step knows them. So an observer sees value and term from
-- the moment of the grant, and never one without the other.
if ARGV[fields_at] == 'tenure:since' then
  ARGV[fields_at + 1] = string.format('%.0f', math.floor(now / 1000))
  ARGV[fields_at + 3] = string.format('%.0f', term)
end
redis.call('DEL', meta)
redis.call('HSET', meta, 'lease', meta_lease, unpack(ARGV, fields_at))
redis.call('PEXPIRE', meta, meta_ttl)
