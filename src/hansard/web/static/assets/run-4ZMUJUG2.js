import{b as r}from"./chunk-D7UFPJIB.js";import{m18 as e}from"./core-O533SUFD.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
